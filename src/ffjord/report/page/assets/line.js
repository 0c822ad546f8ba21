// A flow on the line: its density as a curve over the data, and over time, with the paths of samples.

scenes.line = (figure, stored) => {
  const density = unpack(stored.cells);
  const samples = unpack(stored.samples);
  const arrows = stored.arrows && unpack(stored.arrows);
  const histogram = stored.histogram && unpack(stored.histogram);
  const count = stored.times.length;
  const cells = density.length / count;
  const n = samples.length / count;
  const low = stored.low[0];
  const high = stored.high[0];
  const highest = 1.08 * density.reduce((a, b) => Math.max(a, b), Math.max(...(histogram ?? [0])));
  const canvases = ["density", "samples"].map((name) => figure.querySelector(`canvas.${name}`));
  const [withField, withData] = ["field", "points"].map((name) => figure.querySelector(`input.${name}`));
  if (!arrows) withField.closest("label").remove();
  if (!histogram) withData.closest("label").remove();
  if (count === 1) canvases[1].closest(".stage").remove();
  const tall = (width) => 0.72 * width;
  let shown = null;

  play(figure, stored.times, (moment, t) => {
    const curve = mix(density, cells, moment);
    shown = { curve, box: drawCurve(curve, moment) };
    if (count > 1) drawHistory(t);
    figure.dataset.mass = String((curve.reduce((sum, p) => sum + p, 0) * (high - low)) / cells);
  });

  canvases[0].addEventListener("pointermove", (event) => {
    const part = (event.offsetX - shown.box.left) / shown.box.width;
    if (part < 0 || part >= 1) return;
    const p = shown.curve[Math.floor(part * cells)];
    figure.querySelector(".probe").textContent = `p(${tell(low + part * (high - low), 3)}) = ${tell(p, 3)}`;
  });

  function drawCurve(curve, moment) {
    const { pen, width, height } = sharpen(canvases[0], tall);
    const floor = arrows ? 46 : 26;
    const box = { left: 34, top: 0, width: width - 42, height: height - 24 - floor };
    const x = (value) => box.left + ((value - low) / (high - low)) * box.width;
    const y = (p) => box.top + box.height * (1 - p / highest);
    pen.fillStyle = property("panel");
    pen.fillRect(box.left, box.top, box.width, box.height + floor);
    drawScale(pen, box, [low, 0], [high, highest], { x: false });
    drawScale(pen, { ...box, height: box.height + floor }, [low], [high], { y: false });
    if (histogram && withData.checked) {
      pen.fillStyle = property("data");
      pen.globalAlpha = 0.4;
      const bin = box.width / histogram.length;
      histogram.forEach((p, i) => pen.fillRect(box.left + i * bin, y(p), bin + 0.3, y(0) - y(p)));
    }
    pen.globalAlpha = 1;
    drawProfile(pen, curve, x, y);
    pen.fillStyle = property("model");
    pen.globalAlpha = 0.7;
    const moved = mix(samples, n, moment);
    within(pen, { ...box, height: box.height + floor }, () => {
      moved.forEach((value, i) => pen.fillRect(x(value) - 0.75, y(0) + 5 + 14 * ((i * 0.618) % 1), 1.5, 3));
    });
    if (arrows && withField.checked) drawField(pen, box, mix(arrows, arrows.length / count, moment), y(0) + 34);
    pen.globalAlpha = 1;
    return box;
  }

  function drawProfile(pen, curve, x, y) {
    const middle = (i) => low + ((i + 0.5) / cells) * (high - low);
    pen.beginPath();
    curve.forEach((p, i) => pen.lineTo(x(middle(i)), y(p)));
    pen.strokeStyle = property("model");
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.stroke();
    pen.lineTo(x(high), y(0));
    pen.lineTo(x(low), y(0));
    pen.fillStyle = property("model");
    pen.globalAlpha = 0.14;
    pen.fill();
    pen.globalAlpha = 1;
  }

  function drawField(pen, box, field, height) {
    const size = box.width / field.length;
    const fastest = arrows.reduce((most, v) => Math.max(most, Math.abs(v)), 0) || 1;
    pen.strokeStyle = property("ink");
    pen.globalAlpha = 0.8;
    pen.lineWidth = 1;
    pen.beginPath();
    field.forEach((v, i) => drawArrow(pen, box.left + (i + 0.5) * size, height, v, 0, (0.85 * size) / fastest, 0.85 * size));
    pen.stroke();
  }

  /** Time runs to the right, and x upwards, as in Figure 1 of the paper. */
  function drawHistory(t) {
    const { pen, width, height } = sharpen(canvases[1], tall);
    const box = { left: 34, top: 0, width: width - 42, height: height - 24 };
    const turned = new Float32Array(density.length);
    for (let k = 0; k < count; k++) for (let i = 0; i < cells; i++) turned[i * count + k] = density[k * cells + i];
    paint({ pen, box }, turned, count, highest / 1.08);
    drawScale(pen, box, [0, low], [1, high]);
    within(pen, box, () => {
      pen.strokeStyle = property("arrow");
      pen.lineWidth = 0.8;
      pen.globalAlpha = 0.55;
      for (let i = 5; i < n; i += 10) {
        pen.beginPath();
        for (let k = 0; k < count; k++) {
          const up = (samples[k * n + i] - low) / (high - low);
          pen.lineTo(box.left + (k / (count - 1)) * box.width, box.top + (1 - up) * box.height);
        }
        pen.stroke();
      }
      pen.globalAlpha = 1;
      pen.fillStyle = property("model");
      pen.fillRect(box.left + t * box.width - 1, box.top, 2, box.height);
    });
  }
};
