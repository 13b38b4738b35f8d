// Zooming into a plot: drag a box, or press + and - at the point that is read; a double click or 0 shows everything.

const LEAST_DRAG = 8; // pixels: less is a click
const FLAT_DRAG = 16; // pixels: a drag that is flatter than this zooms along one axis only

class Zoom {
  constructor(plot) {
    this.plot = plot;
    this.ranges = null; // { x: [low, high], y: [low, high] } of what is shown; null: everything
    this.start = null; // where a drag began
    this.button = plot.element.querySelector(".reset");
    this.button.addEventListener("click", () => this.show(null));
    plot.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    plot.canvas.addEventListener("pointermove", (event) => this.drag(event));
    plot.canvas.addEventListener("pointerup", (event) => this.end(event));
    plot.canvas.addEventListener("pointercancel", () => this.cancel());
    plot.canvas.addEventListener("dblclick", () => this.show(null));
  }

  get dragging() {
    return this.box !== undefined && this.box.isConnected;
  }

  /** Show a part, or everything. */
  show(ranges) {
    this.ranges = ranges;
    this.plot.draw();
  }

  begin(event) {
    if (event.button || !this.plot.lines.length) return;
    this.start = this.plot.spot(event);
    this.plot.canvas.setPointerCapture?.(event.pointerId);
  }

  drag(event) {
    if (!this.start) return;
    const [x1, y1, x2, y2] = this.corners(event);
    if (!this.dragging && Math.max(x2 - x1, y2 - y1) < LEAST_DRAG) return;
    if (!this.dragging) this.plot.picture.append((this.box = svg("rect", { class: "zoom" })));
    for (const [name, value] of Object.entries({ x: x1, y: y1, width: x2 - x1, height: y2 - y1 })) this.box.setAttribute(name, value);
    this.plot.read(null);
  }

  end(event) {
    const wanted = this.dragging;
    const corners = this.start && this.corners(event);
    this.cancel();
    if (wanted) this.toCorners(...corners);
  }

  cancel() {
    this.start = null;
    this.box?.remove();
  }

  /** The box from where the drag began to here; a flat one takes the whole of the other axis. */
  corners(event) {
    const { left, right, top, bottom } = this.plot.area();
    const here = this.plot.spot(event), within = (value, low, high) => Math.min(high, Math.max(low, value));
    const [x1, x2] = [this.start.x, here.x].map((x) => within(x, left, right)).sort((a, b) => a - b);
    const [y1, y2] = [this.start.y, here.y].map((y) => within(y, top, bottom)).sort((a, b) => a - b);
    const wide = x2 - x1 >= FLAT_DRAG, tall = y2 - y1 >= FLAT_DRAG;
    if (wide === tall) return [x1, y1, x2, y2];
    return wide ? [x1, top, x2, bottom] : [left, y1, right, y2];
  }

  toCorners(x1, y1, x2, y2) {
    const { x, y } = this.plot.valuesOfPlaces();
    const ranges = { x: [x(x1), x(x2)], y: [y(y2), y(y1)] };
    if (Object.values(ranges).every(([low, high]) => high > low && Number.isFinite(high))) this.show(ranges);
  }

  /** By a factor around the point that is read, or around the middle. */
  by(factor) {
    const { left, right, top, bottom } = this.plot.area(), at = this.plot.cursorPlace();
    const [x, y] = at ?? [(left + right) / 2, (top + bottom) / 2];
    const sides = [[x, left], [y, top], [x, right], [y, bottom]].map(([centre, side]) => centre + (side - centre) * factor);
    const whole = factor > 1 && (!this.ranges || this.coversAll(sides));
    if (whole) this.show(null);
    else this.toCorners(...sides);
  }

  coversAll([x1, y1, x2, y2]) {
    const { x, y } = this.plot.valuesOfPlaces(), full = this.plot.full;
    return x(x1) <= full.x[0] && x(x2) >= full.x[1] && y(y2) <= full.y[0] && y(y1) >= full.y[1];
  }

  /** Move what is shown such that it has this point in the middle, where the point is outside. */
  follow(point) {
    if (!this.ranges) return;
    const { left, right, top, bottom } = this.plot.area(), [x, y] = [this.plot.across(point.x), this.plot.upwards(point.y)];
    if (x >= left && x <= right && y >= top && y <= bottom) return;
    const [dx, dy] = [x - (left + right) / 2, y - (top + bottom) / 2];
    this.toCorners(left + dx, top + dy, right + dx, bottom + dy);
  }
}
