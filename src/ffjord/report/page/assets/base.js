// What every figure needs: numbers out of base64, colours of the page, sharp canvases, round ticks.

const KINDS = { u1: Uint8Array, f4: Float32Array };
const scenes = {};

/** The numbers that Python's `packed` stored. */
function unpack(stored) {
  const bytes = Uint8Array.from(atob(stored.bytes), (c) => c.charCodeAt(0));
  return new KINDS[stored.type](bytes.buffer);
}

/** The value of one of the page's own properties, such as a colour. */
function property(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** 256 colours along the page's own scale of densities. */
function glow() {
  const stops = property("glow").split(",").map((stop) => rgb(stop.trim()));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(place), stops.length - 2);
    return stops[k].map((from, j) => Math.round(from + (place - k) * (stops[k + 1][j] - from)));
  });
}

/** A canvas as wide as its box, with a pixel for every one of the screen; returns its context, in CSS pixels. */
function sharpen(canvas, heightOf) {
  const width = canvas.clientWidth || 300;
  const height = Math.round(heightOf(width));
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

/** A few round numbers in a range, about `most` of them, not closer than `least`. */
function ticks(low, high, most, least = 0) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const size = 10 ** Math.floor(Math.log10(span / most));
  const step = Math.max(least, [1, 2, 5, 10].map((k) => k * size).find((s) => span / s <= most) ?? 10 * size);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k++) found.push(k * step);
  return found.map((value) => Number(value.toPrecision(12)));
}

/** The words of ticks: as many decimals for all as one of them needs. */
function tickWords(values) {
  if (values.some((value) => value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7))) {
    return values.map((value) => tell(value));
  }
  const decimals = Math.max(...values.map((value) => (String(value).split(".")[1] ?? "").length));
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return values.map((value) => value.toLocaleString("en-US", digits).replace("-", "−"));
}

/** The words of ticks where there is little room: 200k, 5e−4. */
function shortTickWords(values) {
  const words = tickWords(values);
  if (words.every((word) => word.length <= 5)) return words;
  const style = { notation: "compact", maximumSignificantDigits: 3 };
  const short = (value) => (Math.abs(value) >= 1 ? value.toLocaleString("en-US", style) : value.toExponential());
  return values.map((value) => (value === 0 ? "0" : short(value).replaceAll("-", "−").replace("K", "k")));
}

/** A number with as many digits as tell neighbours apart, a true minus sign, and thousands apart. */
function tell(value, digits = 4) {
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) {
    return value.toExponential(Math.max(0, digits - 2)).replaceAll("-", "−").replace("e+", "e");
  }
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits }).replace("-", "−");
}

/** The unit in which so many seconds are told, and its length. */
function timeUnit(seconds) {
  return [["h", 3600], ["min", 60]].find(([, size]) => seconds >= 2 * size) ?? ["s", 1];
}

/** Seconds, minutes or hours. */
function tellTime(seconds) {
  const [name, size] = timeUnit(seconds);
  return `${tell(seconds / size, 3)} ${name}`;
}

/** Calls a function when an element has a box, when that changes its width, and when the colours change. */
function keepDrawn(element, draw) {
  let width = 0;
  const redraw = () => {
    width = element.clientWidth;
    if (width > 0) draw();
  };
  new ResizeObserver(() => element.clientWidth !== width && redraw()).observe(element);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Quiet numbers along the lower and the left edge of a panel. */
function drawScale(pen, box, low, high, { x = true, y = true, most = 6, inset = 0 } = {}) {
  pen.fillStyle = property("muted");
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.textAlign = "center";
  if (x) {
    const values = ticks(low[0], high[0], most);
    for (const [i, words] of shortTickWords(values).entries()) {
      const across = ((values[i] - low[0]) / (high[0] - low[0])) * box.width;
      if (across < inset || across > box.width - inset) continue;
      pen.fillText(words, box.left + across, box.top + box.height + 6);
    }
  }
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  if (y) {
    const values = ticks(low[1], high[1], most);
    for (const [i, words] of shortTickWords(values).entries()) {
      const down = ((high[1] - values[i]) / (high[1] - low[1])) * box.height;
      if (down < inset || down > box.height - inset) continue;
      pen.fillText(words, box.left - 6, box.top + down);
    }
  }
}

/** A text as long as it may be, with an ellipsis where its end was. */
function shortened(pen, text, longest) {
  if (pen.measureText(text).width <= longest) return text;
  let shown = text;
  while (shown && pen.measureText(`${shown}…`).width > longest) shown = shown.slice(0, -1);
  return `${shown}…`;
}

/** How much larger and stronger dots may be where there are few. */
function boldness(n) {
  return Math.min(2, Math.max(1, (1000 / n) ** 0.25));
}

/** A dot for every point. */
function drawDots(pen, points, place, radius) {
  pen.beginPath();
  for (let i = 0; i < points.length; i += 2) {
    const [x, y] = place(points[i], points[i + 1]);
    pen.moveTo(x + radius, y);
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  }
  pen.fill();
}

/** The part of a panel that is inside of it. */
function within(pen, box, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top, box.width, box.height);
  pen.clip();
  draw();
  pen.restore();
}
