// A flow over images: samples on their way from noise, beside images of the data.

const ACROSS = 5;

scenes.images = (figure, stored) => {
  const samples = unpack(stored.samples);
  const [count, n, height, width, channels] = stored.samples.shape;
  const size = samples.length / count;
  const canvas = figure.querySelector("canvas.samples");
  const beside = figure.querySelector("canvas.data");
  const data = stored.data && unpack(stored.data);
  if (!data) beside.closest(".stage").remove();

  play(figure, stored.times, (moment) => {
    drawGrid(canvas, mix(samples, size, moment), n);
    if (data) drawGrid(beside, data, stored.data.shape[0]);
  });

  /** Images in rows, each pixel a square of whole pixels of the screen. */
  function drawGrid(target, images, number) {
    const gap = 1;
    const across = ACROSS * (width + gap) - gap;
    const down = Math.ceil(number / ACROSS) * (height + gap) - gap;
    const density = window.devicePixelRatio || 1;
    const room = target.parentElement.clientWidth * density;
    const scale = Math.max(1, Math.floor(room / across));
    const small = document.createElement("canvas");
    [small.width, small.height] = [across, down];
    const pen = small.getContext("2d");
    for (let i = 0; i < number; i++) {
      const place = [(i % ACROSS) * (width + gap), Math.floor(i / ACROSS) * (height + gap)];
      pen.putImageData(picture(images, i), ...place);
    }
    [target.width, target.height] = [scale * across, scale * down];
    [target.style.width, target.style.height] = [`${(scale * across) / density}px`, `${(scale * down) / density}px`];
    const large = target.getContext("2d");
    large.imageSmoothingEnabled = false;
    large.drawImage(small, 0, 0, target.width, target.height);
  }

  function picture(images, i) {
    const image = new ImageData(width, height);
    const light = 255 / (stored.levels - 1);
    for (let k = 0; k < width * height; k++) {
      for (let c = 0; c < 3; c++) {
        const channel = channels === 3 ? c : 0;
        image.data[4 * k + c] = Math.round(light * images[(i * width * height + k) * channels + channel]);
      }
      image.data[4 * k + 3] = 255;
    }
    return image;
  }
};
