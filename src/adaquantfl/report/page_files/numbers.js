"use strict";
// Numbers as people read them: units, digits, ticks.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** The unit that puts `value` at one or more: [1e9, "Gb"] for 3.2e9 bits. Seconds become minutes and hours. */
function unitOf(value, symbol) {
  if (symbol === "s") return value >= 7200 ? [3600, "h"] : value >= 120 ? [60, "min"] : [1, "s"];
  if (!symbol || symbol === "%") return [1, symbol];
  const found = PREFIXES.find(([divisor]) => value >= divisor);
  return found ? [found[0], found[1] + symbol] : [1, symbol];
}

/** Up to this number of significant digits, without an exponent where the number is short. */
function plain(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return value.toExponential(digits - 1);
  const rounded = Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size)))));
  return rounded.toLocaleString("en", { maximumFractionDigits: 12 });
}

/** As exact as it was written down: whole bits and bytes, losses to six digits. */
function exact(value, symbol) {
  if (symbol === "%") return plain(value, 5) + " %";
  if (symbol === "s" || !symbol) return plain(value, 6) + (symbol ? " s" : "");
  const [divisor, unit] = unitOf(value, symbol);
  const whole = Math.round(value).toLocaleString("en") + " " + symbol;
  return divisor === 1 ? whole : `${whole} (${plain(value / divisor)} ${unit})`;
}

function linearTicks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

/** The densest of a few ladders that has no more than `most` rungs between low and high. */
function logTicks(low, high, most, base) {
  if (base === 2) return powerTicks(low, high, most);
  for (const digits of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
    const inside = ticks.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
    if (inside.length >= 3 && inside.length <= most) return inside;
    if (digits.length === 9 && inside.length < 3) return linearTicks(low, high, most - 1);
    if (digits.length === 1) return inside.filter((_, place) => place % Math.ceil(inside.length / most) === 0);
  }
  return [];
}

function powerTicks(low, high, most) {
  const first = Math.ceil(low), whole = Array.from({ length: Math.max(0, Math.floor(high) - first + 1) }, (_, n) => first + n);
  if (low >= 0.9 && whole.length > 1 && whole.length <= 6) return whole;
  const ticks = [];
  for (let power = Math.ceil(Math.log2(low) - 1e-9); power <= Math.log2(high) + 1e-9; power++) ticks.push(2 ** power);
  return ticks.filter((_, place) => place % Math.ceil(ticks.length / most) === 0);
}

/** From a value to a place on the screen. */
function scaleOf(log, low, high, from, to) {
  const of = log ? Math.log : (value) => value;
  const span = of(high) - of(low) || 1;
  return (value) => from + ((of(value) - of(low)) / span) * (to - from);
}

/** The way back: from a place on the screen to a value. */
function valueOf(log, low, high, from, to) {
  const of = log ? Math.log : (value) => value, back = log ? Math.exp : (value) => value;
  const span = of(high) - of(low) || 1;
  return (place) => back(of(low) + ((place - from) / (to - from)) * span);
}
