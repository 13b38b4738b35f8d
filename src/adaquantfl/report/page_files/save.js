// A plot as a picture or as numbers, saved by the browser; nothing is sent anywhere.

const COPIED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight"];
const MARGIN = { top: 34, row: 22, side: 12 }; // pixels: the title, a row of the legend, and what is left free beside it

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A copy of what is drawn that needs no style sheet. */
function withStyles(element) {
  const copy = element.cloneNode(true);
  const originals = [element, ...element.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, n) => {
    const style = getComputedStyle(original);
    for (const name of COPIED) copies[n].style.setProperty(name, style.getPropertyValue(name));
  });
  return copy;
}

/** The plot as an SVG of its own, with its title above and the methods below. */
function pictureOf(plot) {
  const { width, height } = plot, style = getComputedStyle(document.body);
  const words = { fill: style.color, "font-family": style.fontFamily };
  const card = getComputedStyle(plot.element).backgroundColor;
  const legend = svg("g"), right = width - MARGIN.side;
  let [x, y] = [MARGIN.side, height + MARGIN.top + 10];
  for (const line of plot.lines) {
    const wide = 50 + 7 * line.method.label.length;
    if (x > MARGIN.side && x + wide > right) [x, y] = [MARGIN.side, y + MARGIN.row];
    const colour = getComputedStyle(plot.picture.querySelectorAll(".method")[plot.lines.indexOf(line)]).color;
    const dash = line.method.dash ? { "stroke-dasharray": line.method.dash } : {};
    legend.append(svg("path", { d: `M${x},${y}h30`, stroke: colour, "stroke-width": line.method.ours ? 2.8 : 1.9, fill: "none", ...dash }));
    legend.append(svg("path", { d: MARKERS[line.method.marker] ?? MARKERS.o, fill: colour, transform: `translate(${x + 15},${y})` }));
    legend.append(svg("text", { x: x + 36, y: y + 4, "font-size": 12.5, ...words }, line.method.label));
    x += wide;
  }
  const tall = y + MARGIN.row;
  const drawing = withStyles(plot.picture);
  drawing.querySelectorAll(".mark, .zoom").forEach((part) => part.remove());
  for (const [name, value] of Object.entries({ y: MARGIN.top, width, height })) drawing.setAttribute(name, value);
  const title = svg("text", { x: MARGIN.side, y: 22, "font-size": 15, "font-weight": 600, ...words }, plot.spec.title);
  const ground = svg("rect", { width, height: tall, fill: card });
  return svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}` }, ground, title, drawing, legend);
}

async function savePicture(plot, scale = 2) {
  const picture = pictureOf(plot), image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(picture));
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = ["width", "height"].map((name) => scale * Number(picture.getAttribute(name)));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, `adaquantfl-${plot.spec.name}.png`));
}

/** Every point of the lines that are shown, with the names of the columns of history.csv. */
function csvOf(plot) {
  const factor = plot.y.factor;
  const rows = plot.lines.flatMap((line) => line.points.map((point) => [
    line.method.label, line.seeds, point.round, point.x, point.y / factor, (point.low ?? point.y) / factor, (point.high ?? point.y) / factor,
  ]));
  const heads = ["method", "seeds", "round", plot.x.key === "round" ? "x" : plot.x.key, plot.y.key, "lowest_seed", "highest_seed"];
  return [heads, ...rows].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}

function csvCell(value) {
  if (typeof value === "number") return String(value);
  const safe = /^[=+@-]/.test(value) ? `'${value}` : value; // a spreadsheet would take it for a formula
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function saveNumbers(plot) {
  download(new Blob([csvOf(plot)], { type: "text/csv" }), `adaquantfl-${plot.spec.name}.csv`);
}
