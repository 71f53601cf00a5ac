"use strict";
// Draws each figure from the data beside it, in the colours of the page, and again when its size or its colours change.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const palettes = {
    light: ["#0b6e6e", "#c2571a", "#5a4fb0", "#3f7d20", "#b0326a", "#2f6fb0", "#8a6d1d", "#555f68"],
    dark: ["#5cc8c0", "#f0a060", "#a79cf0", "#9ccf6b", "#f08ab8", "#7fb8f0", "#d9bb5a", "#a9b4bd"],
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const drawn = [];

  const draw = (element) => {
    const option = read(`${element.id}-option`);
    const [ink, faint, line, paper] = ["--ink", "--faint", "--line", "--paper"].map(colour);
    option.color = dark.matches ? palettes.dark : palettes.light;
    option.textStyle = { fontFamily: "system-ui, sans-serif", color: ink };
    option.legend.textStyle = { color: ink };
    option.tooltip = { ...option.tooltip, backgroundColor: paper, borderColor: line, textStyle: { color: ink } };
    for (const axis of [option.xAxis, ...option.yAxis]) {
      axis.nameTextStyle = { color: faint };
      axis.axisLabel = { ...axis.axisLabel, color: faint };
      axis.axisLine = { lineStyle: { color: line } };
      axis.splitLine = { lineStyle: { color: line }, ...axis.splitLine };
    }
    const chart = echarts.init(element, null, { renderer: "svg" });
    chart.setOption(option);
    drawn.push(chart);
  };

  const drawAll = () => {
    drawn.splice(0).forEach((chart) => chart.dispose());
    document.querySelectorAll(".chart").forEach(draw);
  };

  drawAll();
  dark.addEventListener("change", drawAll);
  window.addEventListener("resize", () => drawn.forEach((chart) => chart.resize()));
  window.addEventListener("beforeprint", () => drawn.forEach((chart) => chart.resize()));
})();
