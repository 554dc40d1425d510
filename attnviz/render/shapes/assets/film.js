"use strict";
(() => {
  const film = JSON.parse(document.getElementById("film").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const find = (id) => document.getElementById(id);
  const stage = find("stage");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const speeds = ["0.5", "1", "2", "4"];
  const parts = new Map();
  let at = 0;
  let timer = null;

  function make(name) {
    const group = document.createElementNS(SVG, "g");
    const rect = document.createElementNS(SVG, "rect");
    const text = document.createElementNS(SVG, "text");
    rect.setAttribute("rx", "2");
    text.setAttribute("dominant-baseline", "central");
    group.append(rect, text);
    group.style.opacity = "0";
    stage.append(group);
    const part = { group, rect, text, shown: false };
    parts.set(name, part);
    return part;
  }

  function place(part, box) {
    const [x, y, width, height, fill, words, colour, bold, ring, align] = box;
    if (!part.shown) part.group.style.transition = "opacity 0.45s";
    part.group.style.transform = `translate(${x}px, ${y}px)`;
    if (!part.shown) {
      part.group.getBoundingClientRect();
      part.group.style.transition = "";
    }
    part.group.style.opacity = "1";
    part.shown = true;
    part.rect.style.width = `${width}px`;
    part.rect.style.height = `${height}px`;
    part.rect.style.fill = fill || "transparent";
    part.rect.classList.toggle("ring", ring);
    part.text.textContent = words;
    part.text.setAttribute("x", align === "middle" ? width / 2 : 0);
    part.text.setAttribute("y", height / 2);
    part.text.setAttribute("text-anchor", align);
    part.text.style.setProperty("--colour", colour);
    part.text.classList.toggle("bare", !fill);
    part.text.style.fontWeight = bold ? "700" : "400";
    const room = fill ? Math.min(height * 0.6, width / (0.62 * Math.max(5, words.length)), 16) : 13;
    part.text.style.fontSize = `${room}px`;
  }

  function show(index) {
    at = Math.min(Math.max(index, 0), film.frames.length - 1);
    const frame = film.frames[at];
    const named = new Map(frame.boxes.map(([name, box]) => [film.names[name], film.boxes[box]]));
    for (const [name, part] of parts) {
      if (!named.has(name) && part.shown) {
        part.group.style.opacity = "0";
        part.shown = false;
      }
    }
    for (const [name, box] of named) place(parts.get(name) || make(name), box);
    find("caption").textContent = frame.caption;
    find("shapes").textContent = frame.shapes;
    find("seek").value = String(at);
    find("where").textContent = `${at + 1} / ${film.frames.length}`;
  }

  function playing() {
    return timer !== null;
  }

  function pause() {
    clearTimeout(timer);
    timer = null;
    find("play").textContent = "Play";
  }

  function wait() {
    const seconds = film.frames[at].seconds + 0.7;
    timer = setTimeout(() => {
      if (at === film.frames.length - 1) {
        pause();
        return;
      }
      show(at + 1);
      wait();
    }, (1000 * seconds) / Number(find("speed").value));
  }

  function play() {
    if (at === film.frames.length - 1) show(0);
    find("play").textContent = "Pause";
    wait();
  }

  function step(by) {
    pause();
    show(at + by);
  }

  function faster(by) {
    const select = find("speed");
    const next = speeds.indexOf(select.value) + by;
    select.value = speeds[Math.min(Math.max(next, 0), speeds.length - 1)];
  }

  find("seek").max = String(film.frames.length - 1);
  find("play").addEventListener("click", () => (playing() ? pause() : play()));
  find("back").addEventListener("click", () => step(-1));
  find("next").addEventListener("click", () => step(1));
  find("seek").addEventListener("input", (event) => {
    pause();
    show(Number(event.target.value));
  });
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const inForm = ["SELECT", "INPUT"].includes(event.target.tagName);
    const onButton = event.target.tagName === "BUTTON";
    const keys = {
      " ": () => (playing() ? pause() : play()),
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      Home: () => step(-film.frames.length),
      End: () => step(film.frames.length),
      "+": () => faster(1),
      "-": () => faster(-1),
    };
    const act = keys[event.key];
    if (!act || (inForm && !"+-".includes(event.key)) || (onButton && event.key === " ")) return;
    event.preventDefault();
    act();
  });

  document.body.classList.add("still");
  show(0);
  requestAnimationFrame(() => document.body.classList.remove("still"));
  if (!calm.matches) play();
})();
