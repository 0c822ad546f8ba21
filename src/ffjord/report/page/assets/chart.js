// Curves against steps or time, with what is under the pointer, or chosen by the arrow keys, told below.

const EDGES = { left: 52, right: 10, top: 8, bottom: 26 };

scenes.chart = (figure, stored) => {
  const plot = figure.querySelector(".plot");
  const output = figure.querySelector("output");
  const group = figure.closest("[data-axis]");
  const longest = stored.series.reduce((a, b) => (b.step.length > a.step.length ? b : a));
  let chosen = null;
  let scale = null;
  const axis = () => (isTime(stored) ? "step" : (group?.dataset.axis ?? "step"));
  const draw = () => {
    scale = scaleOf(stored, axis(), plot.clientWidth, 220);
    plot.innerHTML = svg(stored, scale, axis());
    choose(chosen);
  };
  keepDrawn(plot, draw);
  group?.addEventListener("axis", draw);
  plot.addEventListener("pointermove", (event) => choose(nearest(longest[axis()], scale.value(event.offsetX))));
  plot.addEventListener("pointerleave", () => choose(null));
  plot.addEventListener("blur", () => choose(null));
  plot.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const last = longest.step.length - 1;
    choose(Math.max(0, Math.min(last, (chosen ?? last) + by)));
  });

  function choose(number) {
    chosen = number;
    const line = plot.querySelector(".chosen");
    line.style.display = number === null ? "none" : "";
    output.textContent = number === null ? "" : told(stored, longest, number);
    if (number === null) return;
    const x = scale.x(longest[axis()][number]);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }
};

function isTime(stored) {
  return stored.kind === "duration";
}

/** Where numbers are on a chart of the given size. */
function scaleOf(stored, axis, width, height) {
  const across = [0, Math.max(...stored.series.map((one) => one[axis][one[axis].length - 1]), 1e-9)];
  const up = rangeOf(stored.series, stored.kind === "loss");
  const room = [width - EDGES.left - EDGES.right, height - EDGES.top - EDGES.bottom];
  return {
    width,
    height,
    across,
    up,
    x: (value) => EDGES.left + ((value - across[0]) / (across[1] - across[0])) * room[0],
    y: (value) => EDGES.top + (1 - (value - up[0]) / (up[1] - up[0])) * room[1],
    value: (x) => across[0] + ((x - EDGES.left) / room[0]) * (across[1] - across[0]),
  };
}

/** The range of all series; those that are no losses begin at zero. */
function rangeOf(series, isLoss) {
  const ends = series.map((one) => (isLoss ? usual(one.value) : [0, one.value.reduce((a, b) => Math.max(a, b))]));
  const low = Math.min(...ends.map((end) => end[0]));
  const high = Math.max(...ends.map((end) => end[1]));
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  return [isLoss ? low - room : low, high + room];
}

/** The range of losses, without those that lie far above the rest, as the first of a training may. */
function usual(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, most, high] = [0, 0.9, 1].map((part) => sorted[Math.floor(part * (sorted.length - 1))]);
  return [low, high - low > 3 * (most - low) && most > low ? low + 1.5 * (most - low) : high];
}

function svg(stored, scale, axis) {
  const { width, height } = scale;
  const lines = labelled(...scale.up, isTime(stored), 5, stored.kind === "count" ? 1 : 0).map(([value, words]) => {
    const y = scale.y(value);
    const label = `<text x="${EDGES.left - 8}" y="${y}" class="y">${words}</text>`;
    return `<line x1="${EDGES.left}" x2="${width - EDGES.right}" y1="${y}" y2="${y}" class="grid"/>${label}`;
  });
  const most = width < 420 ? 4 : 6;
  const labels = labelled(...scale.across, axis === "seconds", most, 0).map(([value, words]) => {
    return `<text x="${scale.x(value)}" y="${height - 8}" class="x">${words}</text>`;
  });
  const marks = stored.marks.map((mark) => `<line x1="${scale.x(mark[axis])}" x2="${scale.x(mark[axis])}" y1="${EDGES.top}" y2="${height - EDGES.bottom}" class="mark"/>`);
  const inside = `<svg x="${EDGES.left}" y="${EDGES.top}" width="${width - EDGES.left - EDGES.right}" height="${height - EDGES.top - EDGES.bottom}" viewBox="${EDGES.left} ${EDGES.top} ${width - EDGES.left - EDGES.right} ${height - EDGES.top - EDGES.bottom}">${stored.series.map((one) => drawn(one, scale, axis)).join("")}</svg>`;
  const chosen = `<line class="chosen" y1="${EDGES.top}" y2="${height - EDGES.bottom}"/>`;
  return `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">${lines.join("")}${labels.join("")}${marks.join("")}${inside}${chosen}</svg>`;
}

/** Ticks and their words; those of durations are round in the one unit that all are told in. */
function labelled(low, high, isDuration, most, least) {
  const [name, size] = isDuration ? timeUnit(high) : ["", 1];
  const values = ticks(low / size, high / size, most, least);
  return tickWords(values).map((words, i) => [values[i] * size, values[i] === 0 ? "0" : `${words} ${name}`.trim()]);
}

function drawn(series, scale, axis) {
  const path = (values) => values.map((value, i) => `${scale.x(series[axis][i]).toFixed(1)},${scale.y(value).toFixed(1)}`);
  const style = `style="--colour: var(--${series.colour})"`;
  const band = series.low ? `<polygon class="band" ${style} points="${[...path(series.low), ...path(series.high).reverse()].join(" ")}"/>` : "";
  const line = `<polyline class="curve" ${style} points="${path(series.value).join(" ")}"/>`;
  const few = series.dots && series.value.length <= 60;
  const dots = few ? path(series.value).map((at) => `<circle class="dot" ${style} cx="${at.split(",")[0]}" cy="${at.split(",")[1]}" r="2.4"/>`) : [];
  return band + line + dots.join("");
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i;
  });
  return best;
}

function told(stored, longest, number) {
  const step = longest.step[number];
  const parts = stored.series.map((one) => {
    const value = one.value[nearest(one.step, step)];
    return `${stored.series.length > 1 ? `${one.name} ` : ""}${isTime(stored) ? tellTime(value) : tell(value, 5)}`;
  });
  const when = isTime(stored) ? "" : ` (${tellTime(longest.seconds[number])})`;
  return `step ${step.toLocaleString("en-US")}${when}: ${parts.join(", ")}`;
}
