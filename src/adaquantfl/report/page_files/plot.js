// One plot in its card: drawn as SVG, read with the pointer or the arrow keys. zoom.js and save.js have the rest.

const SVG = document.querySelector("#card").content.querySelector("svg").namespaceURI;
const SPACE = { top: 14, right: 16, bottom: 46, left: 74 };
const FAR_APART = 8; // totals further apart than this share a logarithmic axis, as in the printed figures
const MOST_ROWS = 14; // of the table beside a point
const MARKERS = {
  o: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
  s: "M-3.5,-3.5h7v7h-7z",
  "^": "M0,-4.6L4.5,3.4H-4.5z",
  v: "M0,4.6L4.5,-3.4H-4.5z",
  "<": "M-4.6,0L3.4,4.5V-4.5z",
  ">": "M4.6,0L-3.4,4.5V-4.5z",
  D: "M0,-4.8L4.8,0L0,4.8L-4.8,0z",
  h: "M0,-4.6L4,-2.3V2.3L0,4.6L-4,2.3V-2.3z",
  X: "M-4,-2L-2,-4L0,-2L2,-4L4,-2L2,0L4,2L2,4L0,2L-2,4L-4,2L-2,0z",
  P: "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
};

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A group in a method's colour, which follows the page's scheme. */
function inColourOf(method, ...children) {
  const group = svg("g", { class: method.ours ? "method ours" : "method" }, ...children);
  group.style.setProperty("--light", method.colour);
  group.style.setProperty("--dark", method.dark);
  return group;
}

class Plot {
  constructor(spec, hidden) {
    this.spec = spec;
    this.hidden = hidden; // labels of methods that are not shown; shared by all plots
    this.chosen = { x: spec.x, y: spec.ys[0].key, logX: spec.logX ?? null, logY: spec.logY };
    this.cursor = null; // { label, round } of the point that is read
    this.element = document.querySelector("#card").content.firstElementChild.cloneNode(true);
    const part = (name) => this.element.querySelector(name);
    [this.canvas, this.picture, this.tip, this.spoken] = [".canvas", "svg", ".tip", ".unseen"].map(part);
    [this.xSelect, this.ySelect, this.logX, this.logY] = [".x", ".y", ".log-x", ".log-y"].map(part);
    this.details = part("details");
    this.lines = [];
    this.zoom = new Zoom(this);
    part("h3").textContent = spec.title;
    this.element.id = "plot-" + spec.name;
    part(".scroll").setAttribute("aria-label", spec.title + ", values as a table");
    for (const [control, name] of [[this.xSelect, "horizontal axis"], [this.logX, "logarithmic x"], [this.logY, "logarithmic y"]])
      control.setAttribute("aria-label", `${spec.title}: ${name}`);
    for (const [name, about] of [[".png", "save as PNG"], [".csv", "save as CSV"], [".reset", "reset zoom"]])
      part(name).setAttribute("aria-label", `${spec.title}: ${about}`);
    part(".png").addEventListener("click", () => savePicture(this));
    part(".csv").addEventListener("click", () => saveNumbers(this));
    this.listen();
  }

  listen() {
    this.xSelect.addEventListener("change", () => this.choose({ x: this.xSelect.value, logX: this.spec.logX ?? null }));
    this.ySelect.addEventListener("change", () => this.choose({ y: this.ySelect.value }));
    this.logX.addEventListener("change", () => this.choose({ logX: this.logX.checked }));
    this.logY.addEventListener("change", () => this.choose({ logY: this.logY.checked }));
    this.details.addEventListener("toggle", () => this.fillTable());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.read(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.canvas.matches(":focus-visible") && this.key({ key: "End" }));
    this.canvas.addEventListener("blur", () => this.read(null));
    new ResizeObserver(() => this.canvas.clientWidth !== this.width && this.draw()).observe(this.canvas);
  }

  choose(change) {
    Object.assign(this.chosen, change);
    this.cursor = null;
    this.zoom.show(null);
  }

  /** New data, or new choices of methods. */
  update(methods) {
    this.methods = methods;
    this.element.hidden = Boolean(this.spec.optional) && !someRunHas(methods, this.spec.ys[0].key);
    const axes = this.spec.axes.filter((axis) => everyRunHas(methods, axis.key));
    fill(this.xSelect, axes);
    if (!axes.some((axis) => axis.key === this.chosen.x)) this.chosen.x = axes.length ? axes[0].key : "round";
    this.xSelect.value = this.chosen.x;
    this.xSelect.parentElement.hidden = axes.length < 2;
    fill(this.ySelect, this.spec.ys);
    this.ySelect.parentElement.hidden = this.spec.ys.length < 2;
    this.draw();
  }

  draw() {
    if (!this.methods) return;
    this.measure();
    const { width, height, lines } = this;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.setAttribute("aria-label", this.inWords());
    this.canvas.setAttribute("aria-label", `${this.spec.title}: arrow keys read the values, plus and minus zoom, 0 resets`);
    this.zoom.button.hidden = !this.zoom.ranges;
    this.logX.checked = this.log.x;
    this.logY.checked = this.log.y;
    const drawn = lines.map((line, place) => this.drawn(line, place));
    this.picture.replaceChildren(...(drawn.length ? [this.axes(), this.view(drawn)] : [this.empty()]));
    this.mark = svg("g", { class: "mark" });
    this.picture.append(this.mark);
    this.read(this.cursor);
    this.fillTable();
  }

  /** The lines, cut off at the axes where only a part is shown. */
  view(drawn) {
    const { left, right, top, bottom } = this.area(), air = this.zoom.ranges ? 0 : 7;
    const [x, y, width, height] = [left - air, top - air, right - left + 2 * air, bottom - top + 2 * air];
    return svg("svg", { class: "view", x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` }, ...drawn);
  }

  /** Where the axes are, in pixels. */
  area() {
    return { left: SPACE.left, right: this.width - SPACE.right, top: SPACE.top, bottom: this.height - SPACE.bottom };
  }

  /** Lines, ranges and scales for the present choices and size. */
  measure() {
    this.width = this.canvas.clientWidth || 560;
    this.height = Math.round(Math.min(340, Math.max(250, this.width * 0.6)));
    this.x = this.spec.axes.find((axis) => axis.key === this.chosen.x) ?? this.spec.axes[0];
    this.y = this.spec.ys.find((y) => y.key === this.chosen.y);
    const shown = this.methods.filter((method) => !this.hidden.has(method.label));
    const draft = shown.map((method) => lineOf(method, this.x.key, this.y.key, () => true)).filter((line) => line.points.length);
    const totals = draft.map((line) => line.points[line.points.length - 1].x).filter((total) => total > 0);
    const apart = totals.length > 1 && Math.max(...totals) > FAR_APART * Math.min(...totals);
    this.log = { x: this.chosen.logX ?? apart, y: this.chosen.logY };
    const drawable = (point) => (point.x > 0 || !this.log.x) && (point.y > 0 || !this.log.y);
    const lines = shown.map((method) => lineOf(method, this.x.key, this.y.key, drawable));
    this.lines = lines.filter((line) => line.points.length + line.alone.length).map((line) => this.scaled(line));
    const points = this.lines.flatMap((line) => [...line.points, ...line.alone.flat()]);
    this.xRange = rangeOf(points.map((point) => point.x), this.log.x, this.log.x ? 0 : null);
    const ys = points.flatMap((point) => [point.low ?? point.y, point.high ?? point.y]);
    this.yRange = rangeOf(this.spec.diagonal ? [...ys, ...points.map((point) => point.x)] : ys, this.log.y, 0.06);
    this.full = { x: this.xRange, y: this.yRange };
    if (this.zoom.ranges) [this.xRange, this.yRange] = [this.zoom.ranges.x, this.zoom.ranges.y];
    this.across = scaleOf(this.log.x, ...this.xRange, SPACE.left, this.width - SPACE.right);
    this.upwards = scaleOf(this.log.y, ...this.yRange, this.height - SPACE.bottom, SPACE.top);
  }

  /** From places on the screen to values, along both axes. */
  valuesOfPlaces() {
    const { left, right, top, bottom } = this.area();
    return { x: valueOf(this.log.x, ...this.xRange, left, right), y: valueOf(this.log.y, ...this.yRange, bottom, top) };
  }

  scaled(line) {
    const factor = this.y.factor;
    const times = (point) => ({ ...point, y: point.y * factor, low: (point.low ?? point.y) * factor, high: (point.high ?? point.y) * factor });
    return factor === 1 ? line : { ...line, points: line.points.map(times), alone: line.alone.map((points) => points.map(times)) };
  }

  empty() {
    const text = this.methods.some((method) => method.runs.length) ? "Nothing of this is shown" : "Waiting for the first round";
    return svg("text", { x: this.width / 2, y: this.height / 2, "text-anchor": "middle", class: "label" }, text);
  }

  axes() {
    const { width, height, across, upwards } = this;
    const group = svg("g", { class: "axes" });
    const [bottom, right] = [height - SPACE.bottom, width - SPACE.right];
    const digits = this.zoom.ranges ? 7 : 4, most = Math.max(3, Math.floor((right - SPACE.left) / (this.zoom.ranges ? 80 : 62)));
    const xTicks = ticksOf(this.xRange, this.log.x, most, this.x.unit, 10, digits);
    const yTicks = ticksOf(this.yRange, this.log.y, 6, this.y.unit, this.y.base ?? 10, digits);
    for (const { value, text } of yTicks.ticks) {
      const at = upwards(value);
      group.append(svg("line", { x1: SPACE.left, x2: right, y1: at, y2: at }));
      group.append(svg("text", { x: SPACE.left - 8, y: at + 4, "text-anchor": "end" }, text));
    }
    for (const { value, text } of xTicks.ticks) {
      const at = across(value);
      group.append(svg("line", { x1: at, x2: at, y1: SPACE.top, y2: bottom }));
      const anchor = at > right - 12 ? "end" : "middle";
      group.append(svg("text", { x: anchor === "end" ? right + SPACE.right - 2 : at, y: bottom + 18, "text-anchor": anchor }, text));
    }
    group.append(svg("path", { class: "frame", d: `M${SPACE.left},${SPACE.top}V${bottom}H${right}` }));
    const label = this.x.label + (xTicks.unit ? ` (${xTicks.unit})` : "");
    group.append(svg("text", { x: (SPACE.left + right) / 2, y: height - 8, "text-anchor": "middle", class: "label" }, label));
    const upright = this.y.label + (yTicks.unit ? ` (${yTicks.unit})` : "");
    const middle = (SPACE.top + bottom) / 2;
    group.append(svg("text", { transform: `translate(13,${middle}) rotate(-90)`, "text-anchor": "middle", class: "label" }, upright));
    if (this.spec.diagonal) group.append(...this.diagonal());
    return group;
  }

  /** Where the wire would take exactly what the formula counts. */
  diagonal() {
    const low = Math.max(this.xRange[0], this.yRange[0]), high = Math.min(this.xRange[1], this.yRange[1]);
    if (low >= high) return [];
    const [x1, y1, x2, y2] = [this.across(low), this.upwards(low), this.across(high), this.upwards(high)];
    const slope = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI, middle = `${(x1 + x2) / 2},${(y1 + y2) / 2}`;
    const along = { transform: `translate(${middle}) rotate(${slope})`, dy: -6, "text-anchor": "middle" };
    const text = svg("text", along, "as the formula counts");
    return [svg("line", { x1, y1, x2, y2, class: "diagonal" }), text];
  }

  drawn(line, place) {
    const { method, points, alone } = line;
    const stroke = { fill: "none", "stroke-dasharray": method.dash };
    const band = line.seeds > 1 && points.some((point) => point.high > point.low);
    const parts = band ? [svg("path", { class: "band", d: this.band(points) })] : [];
    parts.push(...alone.map((points) => svg("path", { class: "alone", fill: "none", d: this.path(points) })));
    if (points.length) parts.push(svg("path", { class: "mean", ...stroke, d: this.path(points) }));
    const step = Math.max(1, Math.floor(points.length / 6)), first = points.length > 6 ? Math.floor((step * (place % 6)) / 6) : 0;
    for (let n = first; n < points.length; n += step)
      parts.push(svg("path", { class: "marker", d: MARKERS[method.marker] ?? MARKERS.o, transform: this.shift(points[n]) }));
    return inColourOf(method, ...parts);
  }

  shift(point) {
    return `translate(${this.place(point.x, point.y)})`;
  }

  /** A level holds for the whole round that ends at its point, so levels are drawn as steps. */
  corners(points) {
    if (!this.spec.steps) return points;
    return points.flatMap((point, n) => (n ? [{ ...point, x: points[n - 1].x }, point] : [point]));
  }

  path(points) {
    return "M" + this.corners(points).map((point) => this.place(point.x, point.y)).join("L");
  }

  band(points) {
    const corners = this.corners(points);
    const [upper, lower] = ["high", "low"].map((edge) => corners.map((point) => this.place(point.x, point[edge])));
    return `M${upper.join("L")}L${lower.reverse().join("L")}z`;
  }

  place(x, y) {
    return `${this.across(x).toFixed(1)},${this.upwards(y).toFixed(1)}`;
  }

  // Reading values.

  /** Where an event happened, in the picture's pixels. */
  spot(event) {
    const box = this.picture.getBoundingClientRect(), scale = this.width / (box.width || 1);
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  point(event) {
    if (this.zoom.dragging) return;
    const { x, y } = this.spot(event);
    let nearest = null, least = Infinity;
    for (const line of this.lines)
      for (const point of line.points) {
        const distance = (this.across(point.x) - x) ** 2 + (this.upwards(point.y) - y) ** 2;
        if (distance < least) [least, nearest] = [distance, { label: line.method.label, round: point.round }];
      }
    this.read(nearest);
  }

  key(event) {
    const lines = this.lines.filter((line) => line.points.length);
    if (!lines.length) return;
    const line = lines.find((line) => line.method.label === this.cursor?.label) ?? lines[0];
    const last = line.points.length - 1, now = line.points.findIndex((point) => point.round === this.cursor?.round);
    const at = now < 0 ? last : now;
    const to = { ArrowRight: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: last }[event.key];
    const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const zoom = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (event.key === "Escape") this.read(null);
    else if (zoom) this.zoom.by(zoom);
    else if (event.key === "0") this.zoom.show(null);
    else if (to !== undefined) this.read({ label: line.method.label, round: line.points[to].round }, true);
    else if (turn) this.read(besides(lines, line, turn, line.points[at].x), true);
    else return;
    event.preventDefault?.();
  }

  read(cursor, aloud = false) {
    this.cursor = cursor;
    const line = this.lines.find((line) => line.method.label === cursor?.label);
    const point = line?.points.find((point) => point.round === cursor.round);
    this.tip.hidden = !point;
    this.mark.replaceChildren();
    if (!point) return;
    if (aloud) this.zoom.follow(point);
    const ring = svg("circle", { r: 6.5, transform: this.shift(point) });
    const rule = svg("line", { x1: this.across(point.x), x2: this.across(point.x), y1: SPACE.top, y2: this.height - SPACE.bottom });
    this.mark.replaceChildren(rule, inColourOf(line.method, ring));
    const words = this.valuesOf(line, point);
    this.tip.replaceChildren(...words.map((text, n) => Object.assign(document.createElement(n ? "div" : "strong"), { textContent: text })));
    if (this.lines.length > 1) this.tip.append(this.allAt(point.x));
    if (aloud) this.spoken.textContent = words.join(", ");
    this.placeTip(point);
  }

  /** The point that is read, in the picture's pixels; null where none is. */
  cursorPlace() {
    const line = this.lines.find((line) => line.method.label === this.cursor?.label);
    const point = line?.points.find((point) => point.round === this.cursor.round);
    return point ? [this.across(point.x), this.upwards(point.y)] : null;
  }

  /** The last value of every line at or before x: what each method had reached by then. */
  allAt(x) {
    const rows = this.lines.slice(0, MOST_ROWS).map((line) => {
      const point = line.points.findLast((point) => point.x <= x * (1 + 1e-9));
      return [line.method.label, point ? plain(point.y) : "—", point ? `round ${point.round}` : "not yet"];
    });
    const [divisor, unit] = unitOf(x, this.x.unit);
    const at = this.x.key === "round" ? `round ${plain(x)}` : `${plain(x / divisor)} ${unit}`;
    const table = tableOf([`up to ${at}`, this.y.label + (this.y.unit === "%" ? " (%)" : ""), ""], rows);
    table.querySelectorAll("tbody th").forEach((cell, n) => {
      const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
      swatch.style.setProperty("--light", this.lines[n].method.colour);
      swatch.style.setProperty("--dark", this.lines[n].method.dark);
      cell.prepend(swatch);
    });
    return table;
  }

  valuesOf(line, point) {
    const words = [line.method.label, `${this.y.label}: ${exact(point.y, this.y.unit)}`];
    if (this.x.key !== "round") words.push(`${this.x.label}: ${exact(point.x, this.x.unit)}`);
    words.push(`round ${point.round}`);
    if (line.seeds > 1) words.push(`mean of ${line.seeds} seeds, ${plain(point.low)} to ${plain(point.high)}`);
    return words;
  }

  placeTip(point) {
    const scale = (this.picture.getBoundingClientRect().width || this.width) / this.width;
    const [x, y] = [this.across(point.x) * scale, this.upwards(point.y) * scale];
    const { offsetWidth: wide, offsetHeight: tall } = this.tip, right = this.width * scale;
    const beside = x + 14 + wide <= right ? x + 14 : x - 14 - wide; // to the right of the point, or to its left
    const fits = beside >= 0;
    this.tip.style.left = `${fits ? beside : Math.max(0, Math.min(x - wide / 2, right - wide))}px`;
    this.tip.style.top = `${fits ? Math.max(0, Math.min(y - tall / 2, this.height * scale - tall)) : y + 14}px`;
  }

  /** Where each line ends: the plot's message for a reader who cannot see it. */
  inWords() {
    const ends = this.lines.filter((line) => line.points.length).map((line) => {
      const end = line.points[line.points.length - 1];
      const [divisor, unit] = unitOf(end.x, this.x.unit);
      return `${line.method.label} ends at ${plain(end.y)} at ${this.x.key === "round" ? "round " : ""}${plain(end.x / divisor)} ${unit}`;
    });
    return `${this.y.label} against ${this.x.label.toLowerCase()}. ${ends.join("; ")}.`;
  }

  fillTable() {
    if (!this.details.open) return;
    const heads = ["Method", "round", this.x.label, this.y.label].filter((_, n) => n !== 2 || this.x.key !== "round");
    const rows = this.lines.flatMap((line) => line.points.map((point) => {
      const cells = [line.method.label, point.round, exact(point.x, this.x.unit), exact(point.y, this.y.unit)];
      return cells.filter((_, n) => n !== 2 || this.x.key !== "round");
    }));
    this.details.querySelector(".scroll").replaceChildren(tableOf(heads, rows));
  }
}

/** The point of the next line (turn 1) or the one before (-1) that is nearest along x. */
function besides(lines, line, turn, x) {
  const other = lines[(lines.indexOf(line) + turn + lines.length) % lines.length];
  const nearest = other.points.reduce((best, point) => (Math.abs(point.x - x) < Math.abs(best.x - x) ? point : best));
  return { label: other.method.label, round: nearest.round };
}

/** The range of an axis: a share of air at both ends, or from zero on where `air` is null. */
function rangeOf(values, log, air) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (air === null) return [0, high || 1];
  if (log) {
    const factor = high > low ? (high / low) ** air : 1.3;
    return [low / factor, high * factor];
  }
  const more = (high - low) * air || Math.abs(high) * 0.1 || 1;
  return [low >= 0 ? Math.max(0, low - more) : low - more, high + more];
}

/** Ticks with their text. Along a logarithm each carries its own unit; else one unit goes into the axis' label. */
function ticksOf([low, high], log, most, symbol, base, digits = 4) {
  if (log) {
    const text = (value) => {
      const [divisor, unit] = unitOf(value, symbol);
      return unit ? `${plain(value / divisor, digits)} ${unit}` : plain(value, digits);
    };
    return { unit: "", ticks: logTicks(low, high, most, base).map((value) => ({ value, text: text(value) })) };
  }
  const [divisor, unit] = unitOf(high, symbol);
  const ticks = linearTicks(low / divisor, high / divisor, most);
  return { unit, ticks: ticks.map((value) => ({ value: value * divisor, text: plain(value, digits) })) };
}

function fill(select, choices) {
  const keys = choices.map((choice) => choice.key).join();
  if (select.dataset.keys === keys) return;
  select.dataset.keys = keys;
  select.replaceChildren(...choices.map((choice) => new Option(choice.label, choice.key)));
}

function tableOf(heads, rows) {
  const table = document.createElement("table");
  const row = (cells, name) => {
    const line = document.createElement("tr");
    line.append(...cells.map((cell, n) => {
      const element = document.createElement(name === "th" || n === 0 ? "th" : "td");
      if (element.tagName === "TH") element.scope = name === "th" ? "col" : "row";
      element.textContent = cell;
      return element;
    }));
    return line;
  };
  table.createTHead().append(row(heads, "th"));
  table.createTBody().append(...rows.map((cells) => row(cells, "td")));
  return table;
}
