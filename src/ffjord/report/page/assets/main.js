// Every figure holds what it shows; the program draws it.

for (const figure of document.querySelectorAll("figure[data-kind]")) {
  scenes[figure.dataset.kind](figure, JSON.parse(figure.querySelector("script").textContent));
}
for (const choice of document.querySelectorAll(".axes input")) {
  choice.addEventListener("change", () => {
    const group = choice.closest("[data-axis]");
    group.dataset.axis = choice.value;
    group.dispatchEvent(new Event("axis"));
  });
}
