"use strict";
(function () {
  const root = document.documentElement;

  // The theme: the reader's setting until the button is pressed.
  const button = document.getElementById("theme");
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", "Switch to " + (dark() ? "light" : "dark") + " colors");
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  button.hidden = false;
  name();

  // The frontier: each point has its own words, the slider picks one.
  const panels = [...document.querySelectorAll("div.curve")];
  panels.forEach((panel) => {
    const points = [...panel.querySelectorAll("circle[data-level]")];
    const slider = panel.querySelector("input[type=range]");
    const said = panel.querySelector(".said");
    const marker = panel.querySelector("circle.marker");
    const plot = panel.querySelector("svg.plot");
    let now = points.findIndex((point) => point.classList.contains("now"));
    const show = (index) => {
      now = Math.min(Math.max(index, 0), points.length - 1);
      const point = points[now];
      slider.value = point.dataset.place;
      slider.setAttribute("aria-valuetext", point.dataset.level);
      said.textContent = point.querySelector("title").textContent;
      if (marker) {
        marker.setAttribute("cx", point.getAttribute("cx"));
        marker.setAttribute("cy", point.getAttribute("cy"));
      }
    };
    const showNearest = (far) =>
      show(points.reduce((best, point, i) => (far(point) < far(points[best]) ? i : best), 0));
    slider.addEventListener("input", () =>
      showNearest((point) => Math.abs(Number(point.dataset.place) - Number(slider.value))));
    slider.addEventListener("keydown", (event) => {
      const page = Math.ceil(points.length / 10);
      const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page };
      const ends = { Home: 0, End: points.length - 1 };
      if (!(event.key in steps || event.key in ends)) return;
      event.preventDefault();
      show(event.key in ends ? ends[event.key] : now + steps[event.key]);
    });
    plot.addEventListener("pointermove", (event) =>
      showNearest((point) => {
        const box = point.getBoundingClientRect();
        return Math.abs(box.left + box.width / 2 - event.clientX);
      }));
    slider.closest(".control").hidden = false;
  });

  const choice = document.getElementById("curve-choice");
  if (choice) {
    const choose = () => panels.forEach((panel, i) => (panel.hidden = i !== Number(choice.value)));
    choice.addEventListener("change", choose);
    choice.closest(".control").hidden = false;
    choose();
  }

  // On paper everything is open.
  const folds = [...document.querySelectorAll("details")];
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => (fold.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((fold) => (fold.open = false)));
})();
