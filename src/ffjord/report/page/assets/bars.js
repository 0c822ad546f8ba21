// Numbers with their errors on one scale: a dot, and whiskers of one standard error.

scenes.bars = (figure, stored) => {
  const plot = figure.querySelector(".plot");
  keepDrawn(plot, () => {
    plot.innerHTML = barsSvg(stored.rows, plot.clientWidth);
  });
};

const BAR = { height: 34, foot: 26, colours: { model: "model", paper: "ink", other: "data" } };

function barsSvg(rows, width) {
  const ends = rows.flatMap((row) => [row.value - (row.error ?? 0), row.value + (row.error ?? 0)]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const room = 0.12 * (high - low) || 1;
  const [from, to] = [low - room, high + room];
  const left = Math.min(150, 0.4 * width);
  const x = (value) => left + ((value - from) / (to - from)) * (width - left - 12);
  const height = rows.length * BAR.height + BAR.foot;
  const values = ticks(from, to, width < 420 ? 3 : 5);
  const words = tickWords(values);
  const grid = values.map((value, i) => {
    const line = `<line x1="${x(value)}" x2="${x(value)}" y1="0" y2="${height - BAR.foot}" class="grid"/>`;
    return `${line}<text x="${x(value)}" y="${height - 8}" class="x">${words[i]}</text>`;
  });
  const drawn = rows.map((row, i) => {
    const y = (i + 0.5) * BAR.height;
    const style = `style="--colour: var(--${BAR.colours[row.kind] ?? "data"})"`;
    const error = row.error ?? 0;
    const whiskers = error ? `<path class="whisker" ${style} d="M${x(row.value - error)} ${y}H${x(row.value + error)}M${x(row.value - error)} ${y - 4}v8M${x(row.value + error)} ${y - 4}v8"/>` : "";
    const name = `<text x="0" y="${y}" class="name">${safe(row.name)}</text>`;
    return `${name}${whiskers}<circle class="dot" ${style} cx="${x(row.value)}" cy="${y}" r="4"/>`;
  });
  return `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">${grid.join("")}${drawn.join("")}</svg>`;
}

function safe(text) {
  const span = document.createElement("span");
  span.textContent = text;
  return span.innerHTML;
}
