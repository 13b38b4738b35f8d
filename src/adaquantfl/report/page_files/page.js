// The plots, the legend, and what keeps a live page up to date.

const POLL_MILLISECONDS = 2000;

const hidden = new Set();
const data = JSON.parse(document.querySelector("#data").textContent);
const plots = data.plots.map((spec) => new Plot(spec, hidden));
let methods = data.methods;

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
