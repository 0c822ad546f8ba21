// A table: two columns at a time, data above the diagonal, samples below it, both along it.

scenes.pairs = (figure, stored) => {
  const count = stored.names.length;
  const clouds = { samples: unpack(stored.samples), data: stored.data && unpack(stored.data) };
  const canvas = figure.querySelector("canvas.pairs");
  if (!clouds.data) figure.querySelector("li.data").remove();
  keepDrawn(canvas, draw);

  function draw() {
    const { pen, width } = sharpen(canvas, (across) => across - (across < 500 ? 0 : 18));
    const gap = width < 500 ? 3 : 6;
    const edge = width < 500 ? 0 : 36;
    const side = (width - edge - (count - 1) * gap) / count;
    for (let row = 0; row < count; row++) {
      for (let column = 0; column < count; column++) {
        const box = { left: edge + column * (side + gap), top: row * (side + gap), width: side, height: side };
        drawCell(pen, box, row, column);
        if (edge) drawNumbers(pen, box, row, column);
      }
    }
    figure.dataset.drawn = "true";
  }

  function drawNumbers(pen, box, row, column) {
    const range = (j) => [stored.low[j], stored.high[j]];
    const ends = [range(column), range(row)];
    const low = ends.map((end) => end[0]);
    const high = ends.map((end) => end[1]);
    drawScale(pen, box, low, high, { most: 4, inset: 10, x: row === count - 1, y: column === 0 && row > 0 });
  }

  function drawCell(pen, box, row, column) {
    pen.fillStyle = property("panel");
    pen.globalAlpha = 1;
    pen.fillRect(box.left, box.top, box.width, box.height);
    within(pen, box, () => {
      if (row === column) drawHistograms(pen, box, row);
      else drawCloud(pen, box, row, column);
    });
    pen.globalAlpha = 1;
  }

  function drawCloud(pen, box, row, column) {
    const name = column > row && clouds.data ? "data" : "samples";
    pen.fillStyle = property(name === "data" ? "data" : "model");
    const cloud = clouds[name];
    const bold = boldness(cloud.length / count);
    pen.globalAlpha = 0.45 * bold;
    const points = new Float32Array((2 * cloud.length) / count);
    for (let i = 0; i < cloud.length / count; i++) {
      points[2 * i] = part(cloud[i * count + column], column);
      points[2 * i + 1] = part(cloud[i * count + row], row);
    }
    const place = (x, y) => [box.left + x * box.width, box.top + (1 - y) * box.height];
    drawDots(pen, points, place, (box.width < 90 ? 0.8 : 1.1) * bold);
  }

  function drawHistograms(pen, box, column) {
    const heights = Object.fromEntries(Object.entries(clouds).map(([name, cloud]) => [name, cloud && histogram(cloud, column)]));
    const most = 1.3 * Math.max(...heights.samples, ...(heights.data ?? [0]));
    const width = (bars) => box.width / bars.length;
    const y = (h) => box.top + box.height * (1 - h / most);
    if (heights.data) {
      pen.fillStyle = property("data");
      pen.globalAlpha = 0.45;
      const bin = width(heights.data);
      heights.data.forEach((h, i) => pen.fillRect(box.left + i * bin, y(h), bin + 0.2, y(0) - y(h)));
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = property("model");
    pen.lineWidth = 1.4;
    pen.beginPath();
    const bin = width(heights.samples);
    heights.samples.forEach((h, i) => {
      pen.lineTo(box.left + i * bin, y(h));
      pen.lineTo(box.left + (i + 1) * bin, y(h));
    });
    pen.stroke();
    pen.fillStyle = property("ink");
    pen.font = `${box.width < 90 ? 10 : 12}px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.fillText(shortened(pen, stored.names[column], box.width - 10), box.left + 5, box.top + 5);
  }

  /** Scaled as a density, with the more bars the more points there are. */
  function histogram(cloud, column) {
    const n = cloud.length / count;
    const bars = Math.round(Math.min(40, Math.max(8, 2 * Math.cbrt(n))));
    const heights = new Float32Array(bars);
    for (let i = column; i < cloud.length; i += count) {
      const bar = Math.floor(part(cloud[i], column) * bars);
      if (bar >= 0 && bar < bars) heights[bar] += bars / n;
    }
    return heights;
  }

  function part(value, column) {
    return (value - stored.low[column]) / (stored.high[column] - stored.low[column]);
  }
};
