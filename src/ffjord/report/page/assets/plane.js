// A flow in the plane: its density as colour with the field that moves it, and samples over the data.

scenes.plane = (figure, stored) => {
  const cells = unpack(stored.cells);
  const samples = unpack(stored.samples);
  const arrows = stored.arrows && unpack(stored.arrows);
  const data = stored.data && unpack(stored.data);
  const side = stored.cells.shape[1];
  const { low, high } = stored;
  const spans = [0, 1].map((i) => high[i] - low[i]);
  const fastest = arrows && fast(arrows, spans);
  const canvases = ["density", "samples"].map((name) => figure.querySelector(`canvas.${name}`));
  const [withField, withData] = ["field", "points"].map((name) => figure.querySelector(`input.${name}`));
  if (!arrows) withField.closest("label").remove();
  if (!data) withData.closest("label").remove();
  const bold = data && boldness(data.length / 2);
  let shown = null;

  play(figure, stored.times, (moment) => {
    const density = densityAt(moment);
    const [left, right] = canvases.map(panel);
    shown = { density, box: left.box };
    within(left.pen, left.box, () => {
      paint(left, density, side, bright(moment));
      if (arrows && withField.checked) drawField(left, mix(arrows, arrows.length / stored.times.length, moment));
    });
    within(right.pen, right.box, () => {
      if (data && withData.checked) dots(right, data, "data", 0.5 * bold, 1.1 * bold);
      dots(right, mix(samples, samples.length / stored.times.length, moment), "model", 0.9, 1.7);
    });
    figure.querySelector(".peak").textContent = `≥ ${tell(bright(moment), 2)}`;
    figure.dataset.mass = String(mass(density));
  });

  canvases[0].addEventListener("pointermove", (event) => {
    const { box, density } = shown;
    const across = (event.offsetX - box.left) / box.width;
    const up = 1 - (event.offsetY - box.top) / box.height;
    if (across < 0 || across >= 1 || up < 0 || up >= 1) return;
    const p = density[Math.floor(up * side) * side + Math.floor(across * side)];
    const at = [across, up].map((part, i) => tell(low[i] + part * spans[i], 3));
    figure.querySelector(".probe").textContent = `p(${at.join(", ")}) = ${tell(p, 3)}`;
  });

  /** p at every cell: stored as 255 √(p / peak). */
  function densityAt({ frame, next, share }) {
    const size = side * side;
    const p = new Float32Array(size);
    const weights = [(1 - share) * stored.peak[frame], share * stored.peak[next]];
    for (let i = 0; i < size; i++) {
      const before = cells[frame * size + i] / 255;
      const after = cells[next * size + i] / 255;
      p[i] = weights[0] * before * before + weights[1] * after * after;
    }
    return p;
  }

  function bright({ frame, next, share }) {
    return (1 - share) * stored.bright[frame] + share * stored.bright[next];
  }

  function mass(density) {
    const area = (spans[0] * spans[1]) / density.length;
    return density.reduce((sum, p) => sum + p, 0) * area;
  }

  function panel(canvas) {
    const { pen, width } = sharpen(canvas, (across) => across - 20);
    const box = { left: 34, top: 0, width: width - 42, height: width - 42 };
    pen.fillStyle = property("panel");
    pen.fillRect(box.left, box.top, box.width, box.height);
    drawScale(pen, box, low, high);
    const place = (x, y) => [
      box.left + ((x - low[0]) / (high[0] - low[0])) * box.width,
      box.top + ((high[1] - y) / (high[1] - low[1])) * box.height,
    ];
    return { pen, box, place };
  }

  function dots({ pen, place }, points, colour, alpha, radius) {
    pen.fillStyle = property(colour);
    pen.globalAlpha = alpha;
    drawDots(pen, points, place, radius);
  }

  /** Arrows on a grid, as long as they are fast; the fastest of all times fill their cells. */
  function drawField({ pen, box }, field) {
    const count = Math.round(Math.sqrt(field.length / 2));
    const size = box.width / count;
    const pixels = spans.map((span) => box.width / span);
    pen.strokeStyle = property("arrow");
    pen.lineWidth = 1;
    pen.globalAlpha = 0.75;
    pen.beginPath();
    for (let i = 0; i < count * count; i++) {
      const x = box.left + ((i % count) + 0.5) * size;
      const y = box.top + box.height - (Math.floor(i / count) + 0.5) * size;
      const [u, v] = [field[2 * i] * pixels[0], -field[2 * i + 1] * pixels[1]];
      drawArrow(pen, x, y, u, v, (0.95 * size) / (fastest * box.width), 1.3 * size);
    }
    pen.stroke();
  }
};

/** A density as colour, on a panel. */
function paint({ pen, box }, density, columns, brightest) {
  const colours = glow();
  const rows = density.length / columns;
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  const image = new ImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const level = Math.min(1, density[row * columns + column] / brightest) ** 0.75;
      const place = 4 * ((rows - 1 - row) * columns + column);
      image.data.set(colours[Math.round(255 * level)], place);
      image.data[place + 3] = 255;
    }
  }
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(small, box.left, box.top, box.width, box.height);
}

/** The speed that few arrows exceed, in sides of the panel. */
function fast(arrows, spans) {
  const speeds = [];
  for (let i = 0; i < arrows.length; i += 2) speeds.push(Math.hypot(arrows[i] / spans[0], arrows[i + 1] / spans[1]));
  speeds.sort((a, b) => a - b);
  return speeds[Math.floor(0.95 * (speeds.length - 1))] || 1;
}

/** An arrow through a point, at most `longest` pixels long; part of the path that is being drawn. */
function drawArrow(pen, x, y, u, v, scale, longest) {
  const length = Math.min(Math.hypot(u, v) * scale, longest);
  if (length < 1) return;
  const angle = Math.atan2(v, u);
  const [dx, dy] = [(Math.cos(angle) * length) / 2, (Math.sin(angle) * length) / 2];
  const head = Math.min(4, 0.45 * length);
  pen.moveTo(x - dx, y - dy);
  pen.lineTo(x + dx, y + dy);
  for (const turn of [2.6, -2.6]) {
    pen.moveTo(x + dx, y + dy);
    pen.lineTo(x + dx + head * Math.cos(angle + turn), y + dy + head * Math.sin(angle + turn));
  }
}
