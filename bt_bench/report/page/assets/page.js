"use strict";
(() => {
  const table = document.getElementById("grid");
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  // Rows beyond the first ones are a text until they are needed: a browser lays out few at a time.
  const more = document.getElementById("more");
  const rest = document.getElementById("rest");
  let rows = table ? [...table.tBodies[0].rows] : [];
  const portion = more ? rows.length : Infinity;
  let most = portion;
  const allRows = () => {
    if (rest?.isConnected) {
      const holder = document.createElement("template");
      holder.innerHTML = rest.textContent;
      rows.push(...holder.content.querySelectorAll("tbody > tr"));
      rest.remove();
    }
    return rows;
  };
  const texts = new WeakMap();
  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const offer = (left) => {
    more.hidden = left <= 0;
    more.textContent = `Show ${Math.min(left, portion)} more rows of ${left}`;
  };
  const show = (count = most) => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = allRows().filter((row) => words.every((word) => textOf(row).includes(word)));
    table.tBodies[0].replaceChildren(...matching.slice(0, count));
    shown.textContent = words.length ? `${matching.length} of ${rows.length} rows` : "";
    if (more) offer(matching.length - count);
  };
  const keyOf = (row, column) => {
    const text = row.cells[column].textContent.trim().toLowerCase();
    const number = row.cells[column].className === "n" ? parseFloat(text) : NaN;
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    const numbers = (typeof a === "number") - (typeof b === "number");
    if (numbers) return -numbers;  // rows without a figure come last
    return typeof a === "number" ? a - b : a.localeCompare(b, undefined, {numeric: true});
  };
  const sort = (heading, column) => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const keys = allRows().map((row) => [keyOf(row, column), row]);
    keys.sort(([a], [b]) => {
      if (typeof a !== typeof b) return compare(a, b);
      return up ? compare(a, b) : compare(b, a);
    });
    rows = keys.map(([, row]) => row);
    show();
  };
  if (table) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => sort(heading, column));
    });
    filter.addEventListener("input", () => {
      most = portion;
      show();
    });
    addEventListener("beforeprint", () => show(Infinity));
    addEventListener("afterprint", () => show());
  }
  if (more) {
    more.addEventListener("click", () => {
      most += portion;
      show();
    });
    offer(Number(more.dataset.left));
  }

  // The library of charts is unpacked when the first case is opened.
  const unpack = async (base64, format) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
    return new Response(stream).text();
  };
  let library = null;
  const load = () => {
    library ??= unpack(document.getElementById("charts").textContent, "gzip").then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
    });
    return library;
  };
  // Colours are the page's variables, so that charts follow the reader's scheme, and that of paper.
  const config = {
    background: "transparent", font: "system-ui, sans-serif",
    axis: {labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)"},
    legend: {labelColor: "var(--fg)", titleColor: "var(--soft)", orient: "bottom", title: null},
    view: {stroke: "var(--line)"},
  };
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const valuesOf = (arms, rounds) => arms.flatMap((arm) => arm.us.map((us, index) => (
    {arm: arm.arm, round: rounds[arm.rounds][index], us: us / arm.factor})));
  const tableOf = (arms, values, title) => {
    const rows = new Map();
    for (const {arm, round, us} of values) rows.set(round, {...rows.get(round), [arm]: us});
    const line = (kind, texts) => make("tr", {}, ...texts.map((text) => make(kind, {className: "n", ...(kind === "th" && {scope: "col"})}, String(text))));
    const table = make("table", {}, make("thead", {}, line("th", ["round", ...arms])), make("tbody", {}));
    table.tBodies[0].append(...[...rows].sort(([a], [b]) => a - b).map(
      ([round, us]) => line("td", [round, ...arms.map((arm) => us[arm] ?? "–")])));
    return make("div", {className: "wide", tabIndex: 0, role: "region", ariaLabel: title}, table);
  };
  const draw = async (place) => {
    const data = JSON.parse(await unpack(place.dataset.samples, "deflate"));
    const specs = JSON.parse(document.getElementById("specs").textContent);
    await load();
    const names = [...new Set(data.times.flat().map((arm) => arm.arm))];
    const scale = {domain: names, range: names.map((_, index) => `var(--c${index % 8})`)};
    const discarded = data.discarded.map(([round, why]) => ({round, why}));
    const parts = [];
    data.titles.forEach((title, index) => {
      const samples = valuesOf(data.times[index], data.rounds);
      const pair = make("div", {className: "pair"});
      for (const [name, template] of Object.entries(specs)) {
        const kind = name + (template.layer && discarded.length ? "; red: discarded rounds" : "");
        const chart = make("div", {ariaHidden: "true"});  // the text of the one around it says all
        const text = `${place.dataset.title}, ${title}: ${kind}. The table of percentiles above has the figures.`;
        pair.append(make("div", {}, make("p", {className: "note"}, kind), make("div", {role: "img", ariaLabel: text}, chart)));
        const spec = structuredClone(template);
        if (spec.layer && !discarded.length) spec.layer.pop();
        parts.push([chart, {...spec, datasets: {samples, discarded}}]);
      }
      const table = make("details", {className: "data"}, make("summary", {}, "Samples as a table"));
      table.addEventListener("toggle", () => table.append(tableOf(data.times[index].map((arm) => arm.arm), samples, title)), {once: true});
      const figure = make("figure", {}, make("figcaption", {}, title), pair, table);
      figure.dataset.chart = `samples/${title}`;
      place.append(figure);
    });
    for (const [chart, spec] of parts) {
      await vegaEmbed(chart, spec, {
        actions: false, ast: true, renderer: "svg", mode: "vega-lite", config,
        patch: (vega) => {
          for (const each of vega.scales ?? []) if (each.name === "color") Object.assign(each, {domain: scale.domain, range: scale.range});
          return vega;
        },
      });
    }
    place.dataset.drawn = "whole";
  };
  const drawOnce = (place) => {
    if (!place || place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    draw(place).catch((error) => {
      const note = document.createElement("p");
      note.textContent = `The charts could not be drawn: ${error}`;
      place.append(note);
    });
    place.querySelector(".note")?.remove();
  };
  for (const details of document.querySelectorAll(".case > details")) {
    details.addEventListener("toggle", () => details.open && drawOnce(details.querySelector(".samples")));
  }
  const open = () => {
    const details = document.getElementById(location.hash.slice(1))?.querySelector(":scope > details");
    if (details) {
      details.open = true;
      details.scrollIntoView();
      details.querySelector("summary").focus({preventScroll: true});
    }
  };
  addEventListener("hashchange", open);
  open();
})();
