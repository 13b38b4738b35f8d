// Which plots there are, the legend, and what keeps a live page up to date.

const AXES = [
  { key: "paper_bits", label: "Bits sent by one client", choice: "bits a client", short: "sent by one client", unit: "b" },
  { key: "wire_bytes_up", label: "Bytes sent by all clients", choice: "bytes of all clients", short: "sent by all clients", unit: "B" },
  { key: "round", label: "Round", choice: "rounds", unit: "" },
  { key: "seconds", label: "Time of the run", choice: "time", unit: "s" },
  { key: "simulated_seconds", label: "Simulated time over the links", choice: "simulated time", unit: "s" },
];
const PLOTS = [
  { name: "loss", title: "Training loss", x: "paper_bits", logY: true, axes: AXES, ys: [
    { key: "loss", label: "Training loss", choice: "all data", unit: "" },
    { key: "round_loss", label: "Round loss", choice: "mini-batches", unit: "" },
  ] },
  { name: "accuracy", title: "Test accuracy", x: "paper_bits", logY: false, axes: AXES, optional: true, ys: [
    { key: "test_accuracy", label: "Test accuracy", unit: "%", factor: 100 },
  ] },
  { name: "test-loss", title: "Test loss", x: "paper_bits", logY: true, axes: AXES, optional: true, ys: [
    { key: "test_loss", label: "Test loss", unit: "" },
  ] },
  { name: "levels", title: "Quantization levels s", x: "round", logY: true, steps: true, axes: AXES, ys: [
    { key: "s", label: "Levels s", unit: "", base: 2 },
  ] },
  { name: "bits", title: "Bits an element b", x: "round", logY: true, steps: true, axes: AXES, ys: [
    { key: "bits_per_element", label: "Bits an element b", unit: "", base: 2 },
  ] },
  { name: "traffic", title: "Bytes a round, all clients", x: "round", logY: true, axes: AXES, ys: [
    { key: "up_a_round", label: "Bytes up a round", choice: "up", unit: "B" },
    { key: "down_a_round", label: "Bytes down a round", choice: "down", unit: "B" },
  ] },
  { name: "wire", title: "On the wire against the formula", x: "paper_bits", logX: true, logY: true, diagonal: true, axes: [
    { ...AXES[0], label: "Paper's bits of one client" },
  ], ys: [
    { key: "wire_bits", label: "Bits on the wire, one client", short: "on the wire", unit: "b" },
  ] },
];
const POLL_MILLISECONDS = 2000;

const hidden = new Set();
const plots = PLOTS.map((spec) => new Plot(spec, hidden));
let methods = JSON.parse(document.querySelector("#data").textContent);

function showMethods() {
  drawLegend();
  for (const plot of plots) plot.update(methods);
}

function drawLegend() {
  const legend = document.querySelector("#legend");
  const labels = methods.map((method) => method.label);
  if (legend.dataset.labels === JSON.stringify(labels)) return;
  legend.dataset.labels = JSON.stringify(labels);
  legend.replaceChildren(...methods.map(legendButton));
}

function legendButton(method) {
  const line = svg("path", { class: "mean", d: "M1,8H35", fill: "none", "stroke-dasharray": method.dash });
  const marker = svg("path", { class: "marker", d: MARKERS[method.marker] ?? MARKERS.o, transform: "translate(18,8)" });
  const button = document.createElement("button");
  button.type = "button";
  button.append(svg("svg", { viewBox: "0 0 36 16", "aria-hidden": "true" }, inColourOf(method, line, marker)), method.label);
  button.setAttribute("aria-pressed", String(!hidden.has(method.label)));
  button.addEventListener("click", () => {
    if (!hidden.delete(method.label)) hidden.add(method.label);
    button.setAttribute("aria-pressed", String(!hidden.has(method.label)));
    for (const plot of plots) plot.draw();
  });
  return button;
}

/** Take newer content from the program that serves this page, and keep what the reader has opened and chosen. */
function take(content) {
  methods = content.methods;
  for (const [name, html] of Object.entries(content.sections))
    for (const place of document.querySelectorAll(`[data-section="${name}"]`))
      if (place.dataset.shown !== html) replaceHtml(place, html);
  showMethods();
  say(content.status);
}

function replaceHtml(place, html) {
  const nameOf = (summary) => summary.firstChild.textContent;
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map(nameOf));
  place.innerHTML = place.dataset.shown = html;
  for (const summary of place.querySelectorAll("details > summary")) summary.parentElement.open = open.has(nameOf(summary));
}

function say(text) {
  const status = document.querySelector("#status");
  status.hidden = !text;
  if (status.textContent !== text) status.textContent = text;
}

async function follow(address) {
  let version = "";
  for (;;) {
    try {
      if (!document.hidden) {
        const answer = await fetch(`${address}?since=${version}`, { cache: "no-store" });
        if (answer.status === 200) {
          const content = await answer.json();
          version = content.version;
          take(content);
        }
      }
    } catch {
      say("The program that serves this page does not answer. What is shown is the last that it said.");
      version = "";
    }
    await new Promise((done) => setTimeout(done, POLL_MILLISECONDS));
  }
}

document.querySelector("#cards").append(...plots.map((plot) => plot.element));
showMethods();
if (document.body.dataset.live) follow(document.body.dataset.live);
