// From the runs of a method to the line that is drawn.

/** The points of one run that have both values, with their round. */
function curve(run, x, y, drawable) {
  const { round, [x]: xs, [y]: ys } = run.columns;
  if (!xs || !ys) return [];
  return round
    .map((at, place) => ({ round: at, x: xs[place], y: ys[place] }))
    .filter((point) => point.x != null && point.y != null && drawable(point));
}

/** The mean over seeds where all of them measured, with one standard deviation; and the seeds that go on alone. */
function lineOf(method, x, y, drawable) {
  const curves = method.runs.map((run) => curve(run, x, y, drawable)).filter((points) => points.length);
  if (!curves.length) return { method, points: [], alone: [], seeds: 0 };
  const byRound = curves.map((points) => new Map(points.map((point) => [point.round, point])));
  const shared = curves[0].map((point) => point.round).filter((at) => byRound.every((points) => points.has(at)));
  const points = shared.map((at) => meanOf(byRound.map((points) => points.get(at)), at));
  const last = shared.length ? shared[shared.length - 1] : 0;
  const alone = curves.map((line) => line.filter((point) => point.round >= last)).filter((line) => line.length > 1);
  return { method, points, alone: curves.length > 1 ? alone : [], seeds: curves.length };
}

function meanOf(points, round) {
  const ys = points.map((point) => point.y);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const y = mean(ys), x = mean(points.map((point) => point.x));
  const std = ys.length > 1 ? Math.sqrt(ys.reduce((sum, value) => sum + (value - y) ** 2, 0) / (ys.length - 1)) : 0;
  return { round, x, y, low: y > std ? y - std : Math.min(...ys), high: y + std };  // a logarithmic axis has no 0
}

/** Whether every run that has a round also has this column. */
function everyRunHas(methods, column) {
  return methods.every((method) => method.runs.every((run) => column in run.columns));
}

/** Whether a task measures this at all. */
function someRunHas(methods, column) {
  return methods.some((method) => method.runs.some((run) => column in run.columns));
}
