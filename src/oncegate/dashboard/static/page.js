// The page works without this script. It adds: fragments fetched and swapped while the page is in view, a pause
// that stops every request, the age of what is shown, times that go on, buttons that work once, and keys. No library.
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

  const long = (ms) => {
    const all = Math.max(0, Math.floor(ms / 1000));
    if (all < 120) return all < 60 ? all + " s" : Math.floor((all + 30) / 60) + " min";
    const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, size]) => all >= 2 * size);
    return Math.floor(all / size) + " " + unit;
  };
  const ago = (ms) => ms > Date.now() ? "in " + long(ms - Date.now()) : long(Date.now() - ms) + " ago";
  const hour = { hour: "2-digit", minute: "2-digit", hour12: false, timeZoneName: "short" };
  const day = { weekday: "short", day: "numeric", month: "short" };
  const both = (ms) => new Date(ms).toLocaleString(undefined, Date.now() - ms > 64800000 ? { ...day, ...hour } : hour) + ", " + ago(ms);
  const local = (ms) => new Date(ms).toLocaleString(undefined, { timeZoneName: "short" });
  const showTimes = () => {
    for (const time of document.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms);
      const text = mode === "UTC" ? time.dataset.utc : mode === "local" ? local(ms) : time.closest(".since") ? both(ms) : ago(ms);
      if (time.textContent !== text) time.textContent = text;
      time.title = time.dataset.utc + " · " + local(ms) + " · " + ago(ms);
    }
    if (timesButton) timesButton.textContent = "times: " + mode;
  };

  // How old what is shown is, and why it is not newer. The verdict is never left as it was without contact.
  const fresh = document.getElementById("fresh");
  const banner = document.getElementById("lost");
  const oldAfter = Math.max(4 * seconds, 20) * 1000;
  const clock = (ms) => mode === "UTC"
    ? new Date(ms).toISOString().slice(11, 19) + " UTC" : new Date(ms).toLocaleTimeString(undefined, { hour12: false });
  const startsLost = Boolean(live?.querySelector("[data-lost]"));
  let shownAt = Date.now();
  let answeredAt = Date.now();
  let lost = startsLost;
  let over = false;
  let asking = false;

  const busyWith = () => {
    const active = document.activeElement;
    const picked = getSelection();
    if (live.querySelector("details.action[open]")) return "an action is open";
    if (live.contains(active) && active.matches("input, select, textarea")) return "you fill in a form";
    if (!picked.isCollapsed && live.contains(picked.anchorNode)) return "text is selected";
    return "";
  };
  // The tab's picture: red where something waits or doubled, grey without contact.
  const icon = document.querySelector("link[rel=icon]");
  const paint = (grey) => {
    const name = grey ? "icon-grey" : document.querySelector("nav .badge") ? "icon-red" : "icon";
    const href = icon.getAttribute("href").replace(/[^/]+$/, name + ".svg");
    if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
  };
  const say = () => {
    if (!fresh) return;
    const age = Date.now() - shownAt;
    const held = seconds && !paused && !lost && busyWith();
    const text = over ? "session over" : lost ? "no connection since " + clock(answeredAt)
      : !seconds ? "read " + long(age) + " ago" : paused ? "paused, " + long(age) + " old"
      : held ? "held while " + held + ", " + long(age) + " old" : "live, " + long(age) + " old";
    if (fresh.textContent !== text) fresh.textContent = text;
    document.body.classList.toggle("lost", lost || over);
    document.body.classList.toggle("old", Boolean(seconds) && age > oldAfter);
    paint(lost || over);
  };
  const lose = (words, link) => {
    lost = true;
    const verdict = document.getElementById("verdict");
    if (verdict && !verdict.classList.contains("unknown")) {
      verdict.className = "state unknown";
      const strong = document.createElement("strong");
      strong.textContent = words;
      verdict.querySelector("div").replaceChildren(strong, "What was shown here may not be true any more.");
    }
    if (banner?.hidden) {
      banner.replaceChildren(words, " Everything below is from then. ", ...(link ? [link] : []));
      banner.hidden = false;
    }
    say();
  };
  const end = () => {
    over = true;
    const link = document.createElement("a");
    const root = document.querySelector("link[rel=stylesheet]").getAttribute("href").replace(/\/static\/.*/, "");
    link.href = root + "/login?next=" + encodeURIComponent(location.pathname.slice(root.length) + location.search);
    link.textContent = "Sign in";
    lose("Your session is over since about " + clock(answeredAt) + ".", link);
  };
  const renew = (found) => {
    const badge = found.dataset.badge || "";
    const title = (badge ? "(" + badge + ") " : "") + found.dataset.title + " · oncegate";
    if (document.title !== title) document.title = title;
    const place = document.querySelector("nav a[href$='/waiting']");
    if (!place) return;
    let mark = place.querySelector(".badge");
    if (!badge) { mark?.remove(); return; }
    if (!mark) {
      mark = document.createElement("span");
      mark.className = "badge";
      place.append(" ", mark);
    }
    mark.textContent = badge;
  };

  // What the visitor has opened, and where they are, stays so when the content is exchanged.
  const nameOf = (one) => {
    const part = one.closest("[data-row], article, section");
    return (part?.querySelector("h2, h3, a")?.textContent || "") + "|" + one.querySelector("summary")?.textContent;
  };
  const spotOf = (one) => one.tagName + "|" + (one.getAttribute("href") || one.textContent);
  const exchange = (found) => {
    const opened = new Set([...live.querySelectorAll("details[open]")].map(nameOf));
    const spot = live.contains(document.activeElement) ? spotOf(document.activeElement) : "";
    live.replaceChildren(...found.childNodes);
    for (const one of live.querySelectorAll("details")) if (opened.has(nameOf(one))) one.open = true;
    if (spot) [...live.querySelectorAll("a, button, summary")].find((one) => spotOf(one) === spot)?.focus({ preventScroll: true });
    shownAt = Date.now();
    showTimes();
    mark();
  };
  // A list that grows at its top stays where it is: known rows are renewed in place, new ones wait for a click.
  const pill = document.getElementById("new");
  const rowName = (one) => one.dataset.name || one.querySelector("[data-open]")?.getAttribute("href");
  const hold = (found) => {
    const [old, next] = [live.querySelector("[data-list]"), found.querySelector("[data-list]")];
    if (!old || !next || !pill) return false;
    const known = new Map([...old.querySelectorAll("[data-row]")].map((one) => [rowName(one), one]));
    const rows = [...next.querySelectorAll("[data-row]")];
    const fresh = rows.filter((one) => !known.has(rowName(one))).length;
    if (!fresh) return false;
    for (const one of rows) known.get(rowName(one))?.replaceWith(one);
    pill.textContent = fresh + (fresh === rows.length ? " or more" : "") + " new";
    pill.hidden = false;
    shownAt = Date.now();
    showTimes();
    mark();
    return true;
  };
  const takeVerdict = (found) => {
    const [old, next] = [document.getElementById("verdict"), found.querySelector("#verdict")];
    if (old && next && !old.contains(getSelection().anchorNode)) old.replaceWith(next);
  };

  const refresh = async (all) => {
    if (paused || over || asking || document.hidden || keys?.open) { say(); return; }
    asking = true;
    try {
      const answer = await fetch(location.href, {
        headers: { "x-oncegate-fragment": "1" }, credentials: "same-origin", redirect: "error",
        signal: AbortSignal.timeout(15000),
      });
      if (answer.status === 401) { end(); return; }
      if (!answer.ok) throw new Error("status " + answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.getElementById("live");
      if (!found) throw new Error("no content");
      if (startsLost) { location.reload(); return; }
      lost = false;
      answeredAt = Date.now();
      if (banner) banner.hidden = true;
      renew(found);
      if (paused) return;
      if (busyWith()) takeVerdict(found);
      else if (all === true || !hold(found)) { if (pill) pill.hidden = true; exchange(found); }
    } catch {
      lose("No connection since " + clock(answeredAt) + ".");
    } finally {
      asking = false;
      say();
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
    if (!paused) refresh(true);
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
  pill?.addEventListener("click", () => refresh(true));
  timesButton?.addEventListener("click", () => {
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    memory.set("oncegate-times", mode);
    showTimes();
  });
  document.getElementById("help")?.addEventListener("click", () => keys?.showModal());
  showPause();
  showTimes();
  say();
  setInterval(() => { if (mode === "relative") showTimes(); say(); }, 1000);
  if (seconds) setInterval(refresh, seconds * 1000);
  document.addEventListener("visibilitychange", () => { if (seconds && !document.hidden) refresh(); });
})();
