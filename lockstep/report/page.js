"use strict";
const runs = JSON.parse(document.getElementById("runs").textContent);
const shares = runs.every((run) => run.goal === "top1");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const titles = { step: "steps", epoch: "epochs", seconds: "seconds" };
const colours = ["#0969da", "#e16f24", "#1a7f37", "#8250df", "#bf8700", "#1b7c83", "#cf222e", "#6e7781"];

// Names are text and never markup: plotly takes some tags, and a run may be called anything.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// Where curves coincide, those below stay visible: the first is the widest.
function width(chart, axis, number) {
  return chart === "speed" || axis === "seconds" ? 2 : 2 + 2 * Math.min(runs.length - 1 - number, 4);
}

// Of an evaluation from elsewhere it may not be known when it was: against time it is left out.
function column(points, name, axis) {
  return points[name].filter((_, number) => points[axis][number] !== null);
}

function lines(chart, axis) {
  return runs.map((run, number) => ({
    x: column(run[chart], axis, axis), y: column(run[chart], "value", axis), name: plain(run.name), mode: "lines+markers",
    line: { color: colours[number % colours.length], width: width(chart, axis, number) },
    marker: { size: width(chart, axis, number) + 2 },
  }));
}

function marks(axis) {
  return runs.flatMap((run, number) => run.happenings.length === 0 ? [] : [{
    x: run.happenings.map((one) => one[axis]), y: run.happenings.map(() => 0), showlegend: false, mode: "markers",
    text: run.happenings.map((one) => plain(`${run.name}: ${one.what}`)), hoverinfo: "text", cliponaxis: false,
    marker: { size: 10, color: colours[number % colours.length], line: { width: 2 },
      symbol: run.happenings.map((one) => one.what.endsWith(" joined") ? "circle-open" : "x") },
  }]);
}

function draw(axis, onPaper = false) {
  const isDark = dark.matches && !onPaper;
  const ink = isDark ? "#e6edf3" : "#1b1f24";
  const grid = isDark ? "#30363d" : "#d0d7de";
  for (const element of document.querySelectorAll(".chart")) {
    const chart = element.id;
    const layout = {
      margin: { t: 10, r: 10, b: 10, l: 10 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 12 }, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
      xaxis: { title: { text: titles[axis], standoff: 8 }, gridcolor: grid, zeroline: false, rangemode: "tozero",
        automargin: true },
      yaxis: { gridcolor: grid, zeroline: false, tickformat: chart === "top1" && shares ? ".0%" : "", rangemode: "tozero",
        automargin: true },
    };
    if (onPaper) Object.assign(layout, { width: element.clientWidth, height: element.clientHeight });
    Plotly.react(element, [...lines(chart, axis), ...marks(axis)], layout, { responsive: true, displaylogo: false });
  }
}

const chosen = () => document.querySelector("input[name=axis]:checked").value;
for (const input of document.querySelectorAll("input[name=axis]")) {
  if (input.value === "epoch" && runs.some((run) => run.loss.epoch.includes(null))) input.disabled = true;
  input.addEventListener("change", () => draw(chosen()));
}
dark.addEventListener("change", () => draw(chosen()));
// Paper is white, and has another width than the window.
window.matchMedia("print").addEventListener("change", (query) => draw(chosen(), query.matches));
draw(chosen());
