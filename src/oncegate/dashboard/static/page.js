// The page works without this script. It adds: fragments fetched and swapped while the page is in view, a pause
// that stops every request, times as UTC, local or relative, buttons that work once, and keys. No library.
"use strict";
(() => {
  const live = document.getElementById("live");
  const tools = document.getElementById("tools");
  const pauseButton = document.getElementById("pause");
  const timesButton = document.getElementById("times");
  const keys = document.getElementById("keys");
  const seconds = Number(live?.dataset.live || 0);
  const memory = {
    get: (name) => { try { return sessionStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* private mode */ } },
  };
  const modes = ["relative", "UTC", "local"];
  let mode = memory.get("oncegate-times") || modes[0];
  let paused = memory.get("oncegate-paused") === "yes";
  let row = -1;

  const ago = (ms) => {
    const future = ms > Date.now();
    const all = Math.floor(Math.abs(Date.now() - ms) / 1000);
    const unit = [["d", 86400], ["h", 3600], ["m", 60]].find(([, size]) => all >= 2 * size) || ["s", 1];
    const text = Math.floor(all / unit[1]) + unit[0];
    return future ? "in " + text : text + " ago";
  };
  const local = (ms) => new Date(ms).toLocaleString(undefined, { timeZoneName: "short" });
  const showTimes = () => {
    for (const time of document.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms);
      time.textContent = mode === "UTC" ? time.dataset.utc : mode === "local" ? local(ms) : ago(ms);
      time.title = time.dataset.utc + " · " + local(ms) + " · " + ago(ms);
    }
    if (timesButton) timesButton.textContent = "times: " + mode;
  };

  // Somebody is in the middle of something: an open action, a field, a selection.
  const isBusy = () =>
    live.querySelector("details[open]") ||
    live.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button, summary") ||
    !getSelection().isCollapsed;

  const refresh = async () => {
    if (paused || document.hidden || keys?.open || isBusy()) return;
    try {
      const answer = await fetch(location.href, {
        headers: { "x-oncegate-fragment": "1" }, credentials: "same-origin", redirect: "error",
      });
      if (!answer.ok || paused || isBusy()) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live");
      if (!fresh || paused || isBusy()) return;
      live.replaceChildren(...fresh.childNodes);
      live.classList.remove("stale");
      showTimes();
      mark();
    } catch {
      live.classList.add("stale");
    }
  };

  const showPause = () => {
    if (!pauseButton) return;
    pauseButton.textContent = paused ? "resume" : "pause";
    pauseButton.setAttribute("aria-pressed", String(paused));
    document.body.classList.toggle("paused", paused);
  };
  const togglePause = () => {
    paused = !paused;
    memory.set("oncegate-paused", paused ? "yes" : "no");
    showPause();
    if (!paused) refresh();
  };

  const rows = () => [...document.querySelectorAll("[data-row]")];
  const mark = () => rows().forEach((one, number) => one.classList.toggle("here", number === row));
  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    row = Math.min(all.length - 1, Math.max(0, row + step));
    mark();
    all[row].scrollIntoView({ block: "nearest" });
  };
  const open = () => rows()[row]?.querySelector("[data-open]")?.click();
  const search = () => document.querySelector("input[type=search]")?.focus();
  const actions = {
    "/": search, "j": () => move(1), "k": () => move(-1), "?": () => keys?.showModal(),
    "p": () => seconds && togglePause(), "Enter": open,
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea, button, a, summary");
    if (event.ctrlKey || event.metaKey || event.altKey || keys?.open) return;
    if (typing && (event.key === "Enter" || !event.target.matches("button, a, summary"))) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-once]")) return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    for (const button of form.querySelectorAll("button")) button.setAttribute("aria-disabled", "true");
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("[data-sent]")) delete form.dataset.sent;
  });

  if (tools) tools.hidden = false;
  if (pauseButton) pauseButton.hidden = !seconds;
  pauseButton?.addEventListener("click", togglePause);
  timesButton?.addEventListener("click", () => {
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    memory.set("oncegate-times", mode);
    showTimes();
  });
  document.getElementById("help")?.addEventListener("click", () => keys?.showModal());
  showPause();
  showTimes();
  if (seconds) setInterval(refresh, seconds * 1000);
})();
