"use strict";
(function () {
  const SLOW = 300; // milliseconds until a solve shows its progress
  const QUIET = 350; // milliseconds without a change until a frontier is asked for
  const RETRY = 1200; // milliseconds between two knocks at a server that is gone
  const SAVED = { rules: "rules.toml", policy: "policy.json", report: "report.html", python: "solve.py" };
  const SVG = "http://www.w3.org/2000/svg";
  const get = (id) => document.getElementById(id);
  const pause = (time) => new Promise((done) => setTimeout(done, time));

  // ---- Elements. Text goes in as text: nothing here ever parses markup. ----

  // What is invisible, or turns the direction of writing, is shown as an escape.
  const HIDDEN =
    /[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\p{Surrogate}\u{e0000}-\u{e007f}]/gu;
  function escapeLetter(letter) {
    const code = letter.codePointAt(0).toString(16);
    return code.length <= 2
      ? `\\x${code.padStart(2, "0")}`
      : code.length <= 4
        ? `\\u${code.padStart(4, "0")}`
        : `\\U${code.padStart(8, "0")}`;
  }
  const visible = (text) => String(text).replace(HIDDEN, escapeLetter);
  const say = (element, text) => (element.textContent = visible(text));

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : visible(value));
    }
    const shown = children
      .flat(3)
      .filter((child) => child !== null && child !== undefined && child !== false);
    element.append(...shown.map((child) => (child instanceof Node ? child : visible(child))));
    return element;
  }
  const make = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const draw = (name, attributes, ...children) =>
    fill(document.createElementNS(SVG, name), attributes, children);
  const show = (element, shown) => (element.hidden = !shown);

  // ---- Numbers as people read them, as in reports. ----

  const MINUS = "\u2212";
  const SPACE = "\u00a0";
  const NOTHING = "\u2014";
  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const tidy = (value) => Number(value.toPrecision(12));
  const signed = (text) => (text === "-0" ? "0" : text.replace("-", MINUS));
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

  function roundNumber(value, digits = 3) {
    if (!known(value)) return NOTHING;
    if (!value) return "0";
    const places = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(value))), 0);
    if (places > 6) return signed(value.toExponential(1));
    return signed(
      trim(value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })),
    );
  }
  function hundredths(value, fine) {
    value *= 100;
    if (value && Math.abs(value) < 0.005) return `${value < 0 ? MINUS : ""}under${SPACE}0.01`;
    return signed(trim(value.toFixed(Math.abs(value) >= fine || value === 0 ? 1 : 2)));
  }
  function formatAmount(value, unit) {
    if (!known(value)) return NOTHING;
    if (unit === "plain") return roundNumber(value);
    if (unit === "share") return `${hundredths(value, 0.995)}${SPACE}%`;
    const text = hundredths(value, 10);
    return `${text}${SPACE}${text === "1" || text === MINUS + "1" ? "point" : "points"}`;
  }
  const formatShare = (value) => formatAmount(value, "share");
  const formatCount = (value) =>
    known(value) ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : NOTHING;
  const shorten = (value, most = 40) => {
    const text = String(value);
    return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
  };
  // A level as a person types it: percent of a share, points of a difference.
  const factorOf = (unit) => (unit === "plain" ? 1 : 100);
  const suffixOf = (unit) => ({ share: "%", points: "points" })[unit] || "";

  // ---- What is demanded: the state, its history, and its place in the address. ----

  const token = new URLSearchParams(location.search).get("token") || "";
  const tab = crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2);
  let start = null; // the server's first answer
  let state = { minimize: "", rules: [], view: "predicted" };
  let past = []; // snapshots, the current one at `present`
  let present = -1;
  let kept = []; // scenarios: {name, state, answer}
  let inHand = 0; // the rule whose frontier is drawn
  let partition = null; // the name of what rows are split by
  const cards = new Map(); // text of a rule, with `level` for its number -> what the server says of it
  const asked = new Map(); // text of a rule -> promise of what the server says of it

  const copy = (value) => JSON.parse(JSON.stringify(value));
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

  function commit() {
    if (present < 0 || !same(past[present], state)) {
      past = past
        .slice(0, present + 1)
        .concat(copy(state))
        .slice(-200);
      present = past.length - 1;
    }
    showHistory();
    writeHash();
  }
  function travel(step) {
    if (!past[present + step]) return;
    present += step;
    state = copy(past[present]);
    showHistory();
    writeHash();
    showDemands();
    request(true);
  }
  function showHistory() {
    get("undo").disabled = present <= 0;
    get("redo").disabled = present >= past.length - 1;
  }
  function writeHash() {
    const content = { ...state, hand: inHand, kept: kept.map(({ name, state }) => ({ name, state })) };
    history.replaceState(
      null,
      "",
      `${location.pathname}${location.search}#${encodeURIComponent(JSON.stringify(content))}`,
    );
  }
  function readHash() {
    try {
      const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
      const read = readState(found);
      if (!read) return false;
      const names = Array.isArray(found.kept) ? found.kept : [];
      kept = names
        .map((one) => ({ name: String(one.name), state: readState(one.state), answer: null }))
        .filter((one) => one.state);
      state = read;
      inHand = Number.isInteger(found.hand) ? found.hand : 0;
      return true;
    } catch {
      return false;
    }
  }
  function readState(found) {
    if (!found || typeof found.minimize !== "string" || !Array.isArray(found.rules)) return null;
    const rules = found.rules.map((rule) => ({ text: String(rule.text), on: rule.on !== false }));
    return { minimize: found.minimize, rules, view: found.view === "observed" ? "observed" : "predicted" };
  }

  // A rule's text at another level; the server says what stands before and after the number.
  const putLevel = (card, level) => card.parts[0] + String(tidy(level)) + card.parts[1];

  // ---- Talking to the server. ----

  class Refusal extends Error {}
  class Away extends Error {}
  class Stranger extends Error {}

  async function call(path, body, signal) {
    const options = {
      method: body ? "POST" : "GET",
      headers: { "X-Bylaw-Token": token },
      cache: "no-store",
      signal,
    };
    if (body) {
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    let reply;
    try {
      reply = await fetch(path, options);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      lose();
      throw new Away("the server does not answer");
    }
    if (reply.status === 401 || reply.status === 403) {
      lose(true);
      throw new Stranger("the server does not know this page");
    }
    if (!reply.ok)
      throw new Refusal(
        await reply.json().then(
          (said) => said.error,
          () => `the server answered ${reply.status}`,
        ),
      );
    return reply;
  }
  async function callJson(path, body, signal) {
    const reply = await call(path, body, signal);
    try {
      return await reply.json();
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      lose(); // the answer was cut off
      throw new Away("the server does not answer");
    }
  }

  let lost = false;
  function lose(unknown = false) {
    say(get("gone-title"), unknown ? "The server was started anew." : "The server does not answer.");
    const words = unknown
      ? "It does not know this page. Copy the address that it printed when it started: your rules and scenarios come along."
      : "Your rules and scenarios are kept in this page. If you start it again, give the address that it prints: they come along.";
    say(get("gone-words"), words);
    show(get("gone-form"), true);
    show(get("gone"), true);
    root.dataset.gone = unknown ? "unknown" : "away";
    if (!lost) knock();
  }
  async function knock() {
    lost = true;
    while (lost) {
      await pause(RETRY);
      try {
        const reply = await fetch("/api/start", { headers: { "X-Bylaw-Token": token }, cache: "no-store" });
        if (reply.status === 401 || reply.status === 403) lose(true);
        if (!reply.ok) continue;
        start = await reply.json();
      } catch {
        lose();
        continue;
      }
      lost = false;
    }
    show(get("gone"), false);
    delete root.dataset.gone;
    if (past.length) showStart();
    else begin();
    request(true);
  }
  get("gone-form").addEventListener("submit", (event) => {
    event.preventDefault();
    let address = null;
    try {
      address = new URL(get("gone-address").value.trim());
    } catch {
      address = null;
    }
    const near =
      address &&
      ["127.0.0.1", "localhost", "[::1]"].includes(address.hostname) &&
      address.protocol === "http:";
    get("gone-address").setAttribute("aria-invalid", String(!near));
    if (!near) return;
    address.hash = location.hash;
    if (address.host === location.host && address.search === location.search) location.reload();
    else location.assign(address);
  });

  // ---- Solving: at most one at a time, the newest next, and no answer that is older than the one shown. ----

  let number = 0; // of the newest question
  let shownNumber = 0; // of the answer on the page
  let flight = null; // {number, body, controller, timer}
  let wanted = null; // what is to be asked next
  let answer = null; // the newest answer that was solved
  let answered = null; // the state that it answers
  const stateNow = () => ({ minimize: state.minimize, rules: copy(state.rules), view: state.view });

  function request(now) {
    wanted = stateNow();
    get("results").dataset.settled = "false";
    if (flight && now && !same(flight.asked, wanted)) {
      flight.controller.abort();
      land();
    }
    take();
  }
  function take() {
    if (flight || !wanted || lost) return;
    stopFrontier();
    const asked = wanted;
    wanted = null;
    number += 1;
    const controller = new AbortController();
    flight = { number, asked, controller, timer: setTimeout(() => watchProgress(flight), SLOW) };
    ask(flight);
  }
  function land() {
    clearTimeout(flight.timer);
    flight = null;
    show(get("progress"), false);
  }
  async function ask(mine) {
    let reply = null;
    try {
      reply = await callJson(
        "/api/solve",
        { tab, number: mine.number, ...mine.asked },
        mine.controller.signal,
      );
    } catch (problem) {
      if (flight !== mine) return;
      land();
      if (problem instanceof Refusal)
        reply = { number: mine.number, status: "failed", error: problem.message };
      else if (!wanted) wanted = mine.asked; // for when it is back
    }
    if (flight === mine) land();
    if (reply) receive(reply, mine);
    take();
  }
  function receive(reply, mine) {
    if (mine.number < shownNumber) return;
    shownNumber = mine.number;
    const current = same(mine.asked, stateNow());
    if (reply.status === "solved") {
      answer = reply;
      answered = mine.asked;
    }
    paint(reply, mine.asked, current);
    const results = get("results");
    results.dataset.number = mine.number;
    results.dataset.status = reply.status;
    results.dataset.seconds = reply.seconds ?? "";
    results.dataset.settled = String(current);
    if (!current) return;
    fillScenarios(reply, mine.asked);
    askFrontierSoon();
  }

  // What takes longer shows how far it is, and can be stopped.
  async function watchProgress(mine) {
    if (!mine || flight !== mine) return;
    say(get("progress-words"), "Solving …");
    show(get("progress"), true);
    while (flight === mine) {
      try {
        const told = await callJson(
          `/api/progress?tab=${encodeURIComponent(tab)}`,
          null,
          mine.controller.signal,
        );
        if (flight === mine) sayProgress(told);
      } catch {
        return;
      }
      await pause(250);
    }
  }
  function sayProgress(told) {
    const parts = ["Solving …"];
    if (known(told.seconds)) parts.push(`${told.seconds.toFixed(1)} s`);
    if (known(told.step)) parts.push(`step ${told.step}`);
    if (known(told.off_by)) parts.push(`rules off by ${roundNumber(told.off_by, 2)}`);
    say(get("progress-words"), parts.join(", ").replace("…,", "…"));
  }
  get("cancel").addEventListener("click", async () => {
    wanted = null;
    try {
      await callJson("/api/cancel", { tab });
    } catch {
      // a server that is gone has its own banner
    }
  });

  // ---- The frontier of the rule in hand: asked for once nothing moves, and kept while only its level does. ----

  let frontier = { key: null, body: null, error: null, controller: null };
  let frontierTimer = null;
  const frontiers = new Map(); // the last few, by what they depend on

  function stopFrontier() {
    clearTimeout(frontierTimer);
    if (frontier.controller) frontier.controller.abort();
    frontier.controller = null;
  }
  function frontierKey() {
    const rule = state.rules[inHand];
    const card = rule && cardOf(rule.text);
    if (!rule || !rule.on || !card || !known(card.level)) return null;
    const rules = state.rules.map((one, i) => (i === inHand ? card.template : one.on ? one.text : null));
    return JSON.stringify([state.minimize, rules, state.view]);
  }
  function askFrontierSoon() {
    clearTimeout(frontierTimer);
    const key = frontierKey();
    if (frontiers.has(key)) frontier = frontiers.get(key);
    if (key === null || key === frontier.key) return showFrontier();
    showFrontier();
    frontierTimer = setTimeout(() => askFrontier(key), QUIET);
  }
  async function askFrontier(key) {
    if (flight || wanted || dragging) return;
    const controller = new AbortController();
    const index = inHand;
    frontier = { ...frontier, controller };
    number += 1;
    showFrontier();
    try {
      const body = await callJson(
        "/api/frontier",
        { tab, number, ...stateNow(), rule: index },
        controller.signal,
      );
      if (body.status !== "cancelled") {
        frontier = { key, body, error: null, controller: null };
        frontiers.set(key, frontier);
        if (frontiers.size > 12) frontiers.delete(frontiers.keys().next().value);
      }
    } catch (problem) {
      if (!(problem instanceof Refusal)) return;
      frontier = { key, body: null, error: problem.message, controller: null };
    }
    if (frontier.controller === controller) frontier.controller = null;
    showFrontier();
  }
  function holdRule(index) {
    if (inHand === index) return;
    inHand = index;
    document
      .querySelectorAll("#rules > li")
      .forEach((card, i) => card.classList.toggle("held", i === inHand));
    writeHash();
    if (!flight) askFrontierSoon();
  }

  // ---- Left: the objective and the rules. ----

  const cardOf = (text) => cards.get(text) || null;

  function learn(text) {
    if (cards.has(text)) return Promise.resolve(cards.get(text));
    if (!asked.has(text)) {
      asked.set(
        text,
        callJson("/api/rule", { text }).then(
          (card) => {
            asked.delete(text);
            if (card.ok) cards.set(text, card);
            return card;
          },
          (problem) => {
            asked.delete(text);
            if (problem instanceof Refusal) return { ok: false, error: problem.message };
            throw problem;
          },
        ),
      );
    }
    return asked.get(text);
  }

  function showDemands() {
    const focused = document.activeElement && document.activeElement.id;
    if (document.activeElement !== get("minimize")) get("minimize").value = state.minimize;
    get("rules").replaceChildren(...state.rules.map(makeCard));
    show(get("no-rules"), state.rules.length === 0);
    document
      .querySelectorAll("#views input")
      .forEach((input) => (input.checked = input.value === state.view));
    if (focused && get(focused) && document.activeElement.id !== focused) get(focused).focus();
    state.rules.forEach((rule, i) => {
      if (!cardOf(rule.text)) {
        learn(rule.text).then(
          () => state.rules[i] && state.rules[i].text === rule.text && replaceCard(i),
          () => null,
        );
      }
    });
    if (answer && get("results").dataset.status !== "conflict") sayOfRules(answer, answered);
  }
  function replaceCard(index) {
    const old = get("rules").children[index];
    if (!old) return;
    const focused =
      document.activeElement && old.contains(document.activeElement) ? document.activeElement.id : null;
    old.replaceWith(makeCard(state.rules[index], index));
    if (focused && get(focused)) get(focused).focus();
    if (answer && get("results").dataset.status !== "conflict") sayOfRules(answer, answered);
    if (index === inHand && !flight) askFrontierSoon();
  }
  function makeCard(rule, index) {
    const card = cardOf(rule.text);
    const sentence = (card && card.sentence) || rule.text;
    const toggle = make("input", {
      type: "checkbox",
      role: "switch",
      id: `on-${index}`,
      "aria-labelledby": `sentence-${index}`,
      onchange: (event) => switchRule(index, event.target.checked),
    });
    toggle.checked = rule.on;
    const remove = make(
      "button",
      {
        type: "button",
        class: "plain",
        id: `remove-${index}`,
        title: "Remove",
        "aria-label": `Remove: ${sentence}`,
        onclick: () => removeRule(index),
      },
      "×",
    );
    const item = make(
      "li",
      {
        class: `card${rule.on ? "" : " off"}${index === inHand ? " held" : ""}`,
        onfocusin: (event) => event.target.closest(".level") && holdRule(index),
        onpointerdown: () => holdRule(index),
      },
      make(
        "div",
        { class: "head" },
        toggle,
        make("p", { class: "rule", id: `sentence-${index}` }, sentence),
        remove,
      ),
      make("p", { class: "formal" }, make("code", { id: `text-${index}` }, rule.text)),
      card && known(card.level) ? makeLevel(card, index) : null,
      make("p", { class: "said", id: `said-${index}` }),
    );
    return item;
  }
  function makeLevel(card, index) {
    const factor = factorOf(card.unit);
    const slider = make("input", {
      type: "range",
      id: `slider-${index}`,
      min: card.lowest,
      max: card.highest,
      step: card.step || "any",
      "aria-labelledby": `sentence-${index}`,
      "aria-valuetext": formatAmount(card.level, card.unit),
    });
    slider.value = card.level;
    const field = make("input", {
      type: "number",
      id: `level-${index}`,
      step: "any",
      inputmode: "decimal",
      "aria-labelledby": `sentence-${index} unit-${index}`,
    });
    field.value = tidy(card.level * factor);
    slider.addEventListener("input", () => moveLevel(index, roundTo(Number(slider.value), card), false));
    slider.addEventListener("change", () => moveLevel(index, roundTo(Number(slider.value), card), true));
    slider.addEventListener("pointerdown", () => (dragging = true));
    field.addEventListener("input", () => typeLevel(index, field, factor, false));
    field.addEventListener("change", () => typeLevel(index, field, factor, true));
    return make(
      "div",
      { class: "level" },
      slider,
      make("span", { class: "amount" }, field, make("span", { id: `unit-${index}` }, suffixOf(card.unit))),
    );
  }
  const roundTo = (value, card) => {
    const rounded = card.step ? tidy(Math.round(value / card.step) * card.step) : value;
    return Math.min(Math.max(rounded, card.lowest), card.highest);
  };

  let dragging = false;
  addEventListener("pointerup", () => (dragging = false));
  addEventListener("pointercancel", () => (dragging = false));

  function moveLevel(index, level, final) {
    const rule = state.rules[index];
    const card = cardOf(rule.text);
    rule.text = putLevel(card, level);
    if (!cards.has(rule.text))
      cards.set(rule.text, { ...card, text: rule.text, level, sentence: null, moved: true });
    const now = cards.get(rule.text);
    showLevel(index, now);
    if (final) commit();
    if (!rule.on) {
      if (final) correctSentence(index);
      return;
    }
    request(final);
  }
  function typeLevel(index, field, factor, final) {
    const value = Number(field.value);
    const fine = field.value.trim() !== "" && Number.isFinite(value);
    field.setAttribute("aria-invalid", String(!fine));
    if (!fine) {
      if (final) showLevel(index, cardOf(state.rules[index].text));
      return;
    }
    moveLevel(index, tidy(value / factor), final);
  }
  function showLevel(index, card) {
    const slider = get(`slider-${index}`);
    const field = get(`level-${index}`);
    slider.setAttribute("aria-valuetext", formatAmount(card.level, card.unit));
    if (document.activeElement !== slider) slider.value = card.level;
    if (document.activeElement !== field) {
      field.value = tidy(card.level * factorOf(card.unit));
      field.setAttribute("aria-invalid", "false");
    }
    say(get(`text-${index}`), card.text);
    if (card.sentence) say(get(`sentence-${index}`), card.sentence);
  }
  // A sentence that no answer brings: that of a rule that is off.
  async function correctSentence(index) {
    const rule = state.rules[index];
    const said = await callJson("/api/rule", { text: rule.text }).catch(() => null);
    if (!said || !said.ok || state.rules[index] !== rule) return;
    cards.set(rule.text, said);
    say(get(`sentence-${index}`), said.sentence);
  }

  function switchRule(index, on) {
    state.rules[index].on = on;
    get("rules").children[index].classList.toggle("off", !on);
    if (!on) say(get(`said-${index}`), "");
    commit();
    request(true);
  }
  function removeRule(index) {
    state.rules.splice(index, 1);
    if (inHand >= index && inHand > 0) inHand -= 1;
    commit();
    showDemands();
    request(true);
    const next = get(`remove-${Math.min(index, state.rules.length - 1)}`) || get("new-rule");
    next.focus();
  }
  function addRule(text, card) {
    if (card) cards.set(card.text, card);
    state.rules.push({ text: card ? card.text : text, on: true });
    inHand = state.rules.length - 1;
    commit();
    showDemands();
    request(true);
  }
  function setMinimize() {
    const text = get("minimize").value.trim();
    if (!text || text === state.minimize) {
      get("minimize").value = state.minimize;
      return;
    }
    state.minimize = text;
    commit();
    request(true);
  }

  // What an answer says of each rule goes below it.
  function nameRules(reply, asked) {
    (reply.rules || []).forEach((told, i) => {
      const rule = state.rules[i];
      if (!told || !told.sentence || !rule || !asked.rules[i] || rule.text !== asked.rules[i].text) return;
      if (cardOf(rule.text)) cardOf(rule.text).sentence = told.sentence;
      say(get(`sentence-${i}`), told.sentence);
      get(`remove-${i}`).setAttribute("aria-label", visible(`Remove: ${told.sentence}`));
    });
  }
  function sayOfRules(reply, asked) {
    nameRules(reply, asked);
    (reply.rules || []).forEach((told, i) => {
      const rule = state.rules[i];
      if (!told || !rule || !asked.rules[i] || !get(`said-${i}`)) return;
      const card = cardOf(rule.text);
      if (!rule.on) return;
      const known_rate = known(told.rate) ? `Now ${formatAmount(told.rate, unitOf(told, card))}` : "";
      get(`said-${i}`).replaceChildren(
        make(
          "span",
          { class: `badge ${told.holds === false ? "bad" : "good"}` },
          told.holds === false ? "missed" : known(told.price) && told.price > 0 ? "binding" : "holds",
        ),
        make("span", {}, ` ${known_rate}`),
      );
    });
  }
  const unitOf = (told, card) => told.unit || (card ? card.unit : "plain");

  // ---- Completion: what may come at the cursor. ----

  const quote = (value) => {
    if (typeof value === "string")
      return `'${visible(value.replace(/[\\']/g, "\\$&")).replace(/\n/g, "\\n")}'`;
    return value === true ? "True" : value === false ? "False" : String(value);
  };
  const ofClasses = ["selected", "precision", "recall", "f1"];
  const ofReferences = ["disagreement", "omits"];

  // The open brackets before the cursor: for each, the word before it and the argument's name.
  function readContext(text) {
    const stack = [];
    let quoted = null;
    for (let i = 0; i < text.length; i += 1) {
      const sign = text[i];
      if (quoted) {
        if (sign === "\\") i += 1;
        else if (sign === quoted.sign) quoted = null;
      } else if (sign === "'" || sign === '"') quoted = { sign, from: i };
      else if ("([{".includes(sign))
        stack.push({ sign, before: (text.slice(0, i).match(/[A-Za-z_]\w*$/) || [""])[0], from: i });
      else if (")]}".includes(sign)) stack.pop();
    }
    const word = quoted ? text.slice(quoted.from) : (text.match(/[A-Za-z_]\w*$/) || [""])[0];
    const called = [...stack].reverse().find((one) => one.before) || { before: "", from: 0 };
    const inside = text.slice(called.from + 1, text.length - word.length);
    const named = (inside.match(/([A-Za-z_]\w*)\s*=\s*[[(]?[^=]*$/) || [null, null])[1];
    const stillNamed =
      named && !/=.*,\s*$/.test(inside.slice(inside.lastIndexOf(named)))
        ? named
        : /labels\s*=\s*\[[^\]]*$/.test(inside)
          ? "labels"
          : null;
    return {
      word,
      quoted: Boolean(quoted),
      called: called.before,
      named: stillNamed,
      dotted: !quoted && /\)\.[A-Za-z_]*$/.test(text),
      inside,
    };
  }
  function listValues(context) {
    const family = start.families.some((one) => one.name === context.called);
    if (context.called === "given") {
      if (context.named === "label") return start.classes.map((value) => [value, "class"]);
      if (context.named === "decision") return start.actions.map((value) => [value, "decision"]);
      if (context.named) return (start.groups[context.named] || []).map((value) => [value, context.named]);
      return null;
    }
    if (context.named === "labels") return start.actions.map((value) => [value, "decision"]);
    if (context.named === "between") return ["overall", "groups"].map((value) => [value, "compared"]);
    if (context.named && context.named !== "by") return [];
    if (family || context.named === "by") return Object.keys(start.groups).map((value) => [value, "group"]);
    if (ofClasses.includes(context.called)) return start.actions.map((value) => [value, "decision"]);
    if (ofReferences.includes(context.called))
      return start.references.map((value) => [value, "earlier model"]);
    if (context.called === "custom") return start.costs.map((value) => [value, "cost"]);
    return null;
  }
  function listCompletions(text, cursor, rulesToo) {
    const context = readContext(text.slice(0, cursor));
    const from = cursor - context.word.length;
    const plain = context.word.replace(/^['"]/, "").toLowerCase();
    let found = [];
    const complete = !context.quoted && !context.word && /['")\]\d]\s*$/.test(text.slice(0, cursor)); // an operator comes next
    const values = complete ? [] : listValues(context);
    if (context.dotted) found = [{ insert: "given(", shown: ".given(…)", help: "among some rows only" }];
    else if (values) {
      const close =
        [...ofClasses, ...ofReferences, "custom"].includes(context.called) &&
        !text.slice(cursor).includes(")")
          ? ")"
          : "";
      found = values.map(([value, help]) => ({ insert: quote(value) + close, shown: String(value), help }));
    } else if (context.called === "given") {
      const names = Object.keys(start.groups).filter((name) => /^[A-Za-z_]\w*$/.test(name));
      found = [
        ...names.map((name) => [name, "group"]),
        ["label", "the true class"],
        ["decision", "what is decided"],
      ].map(([name, help]) => ({ insert: `${name}=`, shown: `${name}=`, help }));
    } else if (!context.quoted) {
      const sources = rulesToo ? [...start.rates, ...start.families] : start.rates;
      found = sources.map((one) => ({
        insert: `${one.name}(${/\(\s*\)/.test(one.signature) ? ")" : ""}`,
        shown: one.signature || one.name,
        help: one.help || "",
        name: one.name,
      }));
    }
    const begins = (one) => (one.name || one.shown).toLowerCase().startsWith(plain);
    const holds = (one) =>
      !begins(one) && plain.length > 1 && `${one.shown} ${one.help}`.toLowerCase().includes(plain);
    found = [...found.filter(begins), ...found.filter(holds)].filter((one) => one.insert !== context.word);
    return {
      from,
      items: found.slice(0, 40),
      eager: Boolean(values) || context.dotted || context.called === "given",
    };
  }

  function attachCompletion(input, list, rulesToo) {
    let items = [];
    let chosen = -1;
    let from = 0;
    const close = () => {
      items = [];
      list.replaceChildren();
      chosen = -1;
      show(list, false);
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };
    const choose = (index) => {
      chosen = index;
      [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === index)));
      if (index < 0) return input.removeAttribute("aria-activedescendant");
      input.setAttribute("aria-activedescendant", list.children[index].id);
      list.children[index].scrollIntoView({ block: "nearest" });
    };
    const accept = (index) => {
      const cursor = input.selectionStart;
      const after = input.value
        .slice(cursor)
        .replace(/^\w*['"]?/, (rest) => (/^'/.test(items[index].insert) ? "" : rest));
      const head = input.value.slice(0, from) + items[index].insert;
      input.value = head + after;
      input.setSelectionRange(head.length, head.length);
      close();
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const open = () => {
      if (!start) return;
      const found = listCompletions(input.value, input.selectionStart, rulesToo);
      if (
        !found.items.length ||
        (!found.eager && input.value && !/\w$/.test(input.value.slice(0, input.selectionStart)))
      )
        return close();
      ({ items, from } = found);
      list.replaceChildren(
        ...items.map((item, i) =>
          make(
            "li",
            {
              role: "option",
              id: `${list.id}-${i}`,
              "aria-selected": "false",
              onpointerdown: (event) => {
                event.preventDefault();
                accept(i);
              },
            },
            make("code", {}, shorten(item.shown, 60)),
            make("span", {}, shorten(item.help, 90)),
          ),
        ),
      );
      chosen = -1;
      show(list, true);
      input.setAttribute("aria-expanded", "true");
    };
    input.addEventListener("input", open);
    input.addEventListener("blur", close);
    input.addEventListener("click", () => {
      if (!input.value) open();
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" && !items.length) {
        open();
        event.preventDefault();
        return;
      }
      if (!items.length) return;
      if (event.key === "ArrowDown") choose((chosen + 1) % items.length);
      else if (event.key === "ArrowUp") choose((chosen + items.length - (chosen < 0 ? 0 : 1)) % items.length);
      else if (event.key === "Escape") {
        close();
        event.stopPropagation();
      } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) accept(chosen);
      else if (event.key === "Tab") {
        close();
        return;
      } else return;
      event.preventDefault();
    });
    return close;
  }

  // ---- A new rule: read while it is typed, its mistake marked in place. ----

  let reading = 0;
  function markMistake(text, said) {
    const lines = text.split("\n");
    const line = Math.max((said.line || 1) - 1, 0);
    const before = lines.slice(0, line).join("\n").length + (line ? 1 : 0);
    const at = known(said.column) ? Math.min(before + Math.max(said.column, 0), text.length) : null;
    const marked =
      at === null
        ? null
        : make(
            "pre",
            { class: "marked" },
            text.slice(0, at),
            make("mark", {}, text.slice(at, at + 1) || " "),
            text.slice(at + 1),
          );
    return [make("p", { class: "fault" }, said.error), marked].filter(Boolean);
  }
  async function readRule(final) {
    const text = get("new-rule").value.trim();
    const said = get("new-rule-said");
    const mine = (reading += 1);
    if (!text) {
      said.replaceChildren();
      get("new-rule").removeAttribute("aria-invalid");
      return;
    }
    if (!final) await pause(160);
    if (mine !== reading) return;
    const card = await learn(text).catch(() => null);
    if (!card || mine !== reading) return;
    if (card.ok === false) {
      said.replaceChildren(...markMistake(text, card));
      get("new-rule").setAttribute("aria-invalid", "true");
      return;
    }
    get("new-rule").removeAttribute("aria-invalid");
    if (!final) return said.replaceChildren(make("p", { class: "note" }, card.sentence || card.text));
    said.replaceChildren();
    get("new-rule").value = "";
    addRule(text, card);
  }

  // ---- Right: the answer. ----

  function paint(reply, asked, current) {
    const solved = reply.status === "solved";
    const failed = reply.status === "failed";
    show(get("failure"), failed);
    say(get("failure"), failed ? reply.error || "It could not be solved." : "");
    show(get("conflict"), reply.status === "conflict");
    if (!solved && reply.status !== "cancelled")
      say(get("brief"), failed ? "cannot be solved" : "these rules conflict");
    const stale = !solved && answer && !same(answered, stateNow());
    show(get("stale"), Boolean(stale));
    say(
      get("stale"),
      reply.status === "cancelled"
        ? "Cancelled. Below is the last answer, of other rules"
        : "Below is the last answer, of other rules",
    );
    if (solved) showAnswer(reply, asked);
    else {
      nameRules(reply, asked);
      clearRules(reply);
    }
    if (reply.status === "conflict") showConflict(reply);
    if (current && !dragging) speak(reply);
    showKept();
  }
  function clearRules(reply) {
    state.rules.forEach((rule, i) => {
      const said = get(`said-${i}`);
      if (said && reply.status !== "cancelled") said.replaceChildren();
    });
  }
  function speak(reply) {
    const cost = reply.cost;
    const words = {
      solved: () =>
        `${cost.words || cost.name}: ${formatAmount(cost.before, cost.unit)} without rules, ${formatAmount(cost.after, cost.unit)} with them. ${formatShare(reply.changed)} of decisions change.`,
      conflict: () => "These rules cannot all hold.",
      cancelled: () => "Cancelled.",
      failed: () => "",
    }[reply.status];
    say(get("spoken"), words ? words() : "");
  }

  function showAnswer(reply, asked) {
    show(get("answer"), true);
    showFigures(reply);
    showRates(reply, asked);
    showPrices(reply, asked);
    showChanges(reply);
    showRandomness(reply);
    sayOfRules(reply, asked);
    showFrontier();
  }
  function showFigures(reply) {
    const cost = reply.cost;
    const figure = (name, value, remark, main) =>
      make(
        "div",
        { class: main ? "main" : null },
        make("dt", {}, name),
        make(
          "dd",
          {},
          make("span", { class: "number" }, value),
          remark ? make("span", { class: "remark" }, remark) : null,
        ),
      );
    const more = cost.after - cost.before;
    const unit = cost.unit === "share" ? "points" : cost.unit;
    const words = cost.words || cost.name;
    get("figures").replaceChildren(
      figure("Without rules", formatAmount(cost.before, cost.unit), words),
      figure("With these rules", formatAmount(cost.after, cost.unit), words, true),
      figure(
        "Difference",
        known(more)
          ? `${more > 5e-7 ? "+" : ""}${formatAmount(Math.abs(more) < 5e-7 ? 0 : more, unit)}`
          : NOTHING,
        cost.observed ? "as observed" : "as the scores predict",
      ),
      figure("Decisions that change", formatShare(reply.changed), `of ${formatCount(start.rows)} rows`),
    );
    say(
      get("brief"),
      `${formatAmount(cost.before, cost.unit)} → ${formatAmount(cost.after, cost.unit)} · ${formatShare(reply.changed)} change`,
    );
    get("warnings").replaceChildren(...(reply.warnings || []).map((text) => make("li", {}, text)));
    show(get("warnings"), Boolean(reply.warnings && reply.warnings.length));
  }

  // ---- Charts: places along a row in percent, as in reports. ----

  function fitScale(values) {
    const finite = values.filter(known);
    if (!finite.length) finite.push(0);
    const low = Math.min(...finite);
    const high = Math.max(...finite);
    const apart = high - low > 1e-6 * Math.max(Math.abs(high), Math.abs(low)); // or they differ by rounding alone
    const margin = apart ? 0.06 * (high - low) : 0.05 * (Math.abs(high) || 1);
    return { low: Math.max(low - margin, low >= 0 ? 0 : -Infinity), high: high + margin };
  }
  const placeOn = (scale, value) =>
    3 +
    94 *
      Math.min(Math.max(scale.high > scale.low ? (value - scale.low) / (scale.high - scale.low) : 0.5, 0), 1);
  const at = (scale, value) => `${placeOn(scale, value).toFixed(2)}%`;
  function listTicks(scale, most) {
    const width = scale.high - scale.low;
    if (!(width > 1e-9 * Math.abs(scale.high))) return [scale.low];
    const power = 10 ** Math.floor(Math.log10(width / most));
    const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => width / s <= most);
    const first = Math.ceil(scale.low / step - 1e-9);
    const count = Math.floor(scale.high / step + 1e-9) - first + 1;
    return Array.from({ length: Math.min(Math.max(count, 0), 20) }, (_, i) => tidy((first + i) * step));
  }
  // As many digits as it takes to tell two ticks apart.
  function formatTick(tick, ticks, unit) {
    if (ticks.length < 2) return formatAmount(tick, unit);
    const step = Math.abs(ticks[1] - ticks[0]) * factorOf(unit);
    const digits = Math.min(Math.max(Math.ceil(-Math.log10(step) - 1e-9), 0) + 1, 8);
    return `${signed(trim((tick * factorOf(unit)).toFixed(digits)))}${unit === "share" ? `${SPACE}%` : ""}`;
  }
  const lineFrom = (x1, x2, y1, y2, name) => draw("line", { x1, x2, y1, y2, class: name });
  const makeSvg = (title, height, name, ...content) =>
    draw(
      "svg",
      { role: "img", width: "100%", height, class: name, focusable: "false" },
      draw("title", {}, title),
      ...content,
    );

  function drawDots(title, before, after, scale, lower, upper) {
    const between = known(before) && known(after);
    return makeSvg(
      title,
      28,
      "row",
      listTicks(scale, 3).map((tick) => lineFrom(at(scale, tick), at(scale, tick), 0, 28, "grid")),
      known(lower) && known(upper)
        ? [
            lineFrom(at(scale, lower), at(scale, upper), 23, 23, "interval"),
            [lower, upper].map((end) => lineFrom(at(scale, end), at(scale, end), 20, 26, "interval")),
          ]
        : null,
      between ? lineFrom(at(scale, before), at(scale, after), 12, 12, "way") : null,
      known(before) ? draw("circle", { cx: at(scale, before), cy: 12, r: 5, class: "before" }) : null,
      known(after) ? draw("circle", { cx: at(scale, after), cy: 12, r: 5.5, class: "after" }) : null,
    );
  }
  function drawAxis(scale, unit) {
    return draw(
      "svg",
      { width: "100%", height: 16, "aria-hidden": "true", class: "axis", focusable: "false" },
      listTicks(scale, 3).map((tick, _, ticks) => {
        const place = placeOn(scale, tick);
        return draw(
          "text",
          {
            x: at(scale, tick),
            y: 12,
            "text-anchor": place < 8 ? "start" : place > 92 ? "end" : "middle",
            class: "tick",
          },
          formatTick(tick, ticks, unit),
        );
      }),
    );
  }

  // Before and after: a block for each decision, a row for each group.
  function showRates(reply, asked) {
    const all = reply.partitions || [];
    const chosen = all.find((one) => one.name === partition) || all[1] || all[0];
    if (!chosen) return get("rates").replaceChildren();
    showPartitions(all, chosen);
    const observed = asked.view === "observed";
    show(
      get("interval-key"),
      chosen.groups.some((group) => Array.isArray(group.lower)),
    );
    const blocks = reply.actions.map((action, a) => ({
      name: String(action),
      rows: chosen.groups.map((group) => ({
        group,
        before: group.before[a],
        after: group.after[a],
        lower: group.lower && group.lower[a],
        upper: group.upper && group.upper[a],
      })),
    }));
    if (chosen.groups.some((group) => known(group.mistakes_after))) {
      blocks.push({
        name: (reply.kind || start.kind) === "sets" ? "true label left out" : "mistakes",
        mistakes: true,
        rows: chosen.groups.map((group) => ({
          group,
          before: group.mistakes_before,
          after: group.mistakes_after,
        })),
      });
    }
    const scale = fitScale(
      blocks.flatMap((block) => block.rows.flatMap((row) => [row.before, row.after, row.lower, row.upper])),
    );
    const words = chosen === all[0] ? "all rows" : `by ${chosen.name}`;
    get("rates").replaceChildren(
      make(
        "table",
        { class: "chart" },
        make(
          "caption",
          { class: "unseen" },
          `Share of each decision before and after, ${words}${observed ? ", as observed" : ""}`,
        ),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("th", { scope: "col" }, chosen === all[0] ? "" : chosen.name),
            make("th", { scope: "col" }, make("span", { class: "unseen" }, "chart")),
            make("th", { scope: "col" }, "before"),
            make("th", { scope: "col" }, "after"),
          ),
        ),
        blocks.map((block) => makeBlock(block, scale)),
        make(
          "tfoot",
          {},
          make(
            "tr",
            {},
            make("td", {}),
            make("td", {}, drawAxis(scale, "share")),
            make("td", {}),
            make("td", {}),
          ),
        ),
      ),
    );
  }
  function makeBlock(block, scale) {
    return make(
      "tbody",
      { class: block.mistakes ? "mistakes" : null },
      make(
        "tr",
        { class: "block" },
        make("th", { scope: "rowgroup", colspan: 4, title: block.name }, shorten(block.name)),
      ),
      block.rows.map(({ group, before, after, lower, upper }) => {
        const interval =
          known(lower) && known(upper) ? `, between ${formatShare(lower)} and ${formatShare(upper)}` : "";
        return make(
          "tr",
          {},
          make(
            "th",
            { scope: "row", title: `${group.value}: ${formatCount(group.rows)} rows` },
            shorten(group.value, 28),
          ),
          make(
            "td",
            {},
            drawDots(
              `${block.name}, ${group.value}: ${formatShare(before)} before, ${formatShare(after)} after${interval}`,
              before,
              after,
              scale,
              lower,
              upper,
            ),
          ),
          make("td", {}, formatShare(before)),
          make("td", { class: "strong" }, formatShare(after)),
        );
      }),
    );
  }
  function showPartitions(all, chosen) {
    const focused = document.activeElement && document.activeElement.id;
    get("partitions").replaceChildren(
      ...all.map((one, i) =>
        make(
          "button",
          {
            type: "button",
            id: `partition-${i}`,
            "aria-pressed": String(one === chosen),
            title: one.name,
            onclick: () => {
              partition = one.name;
              showRates(answer, answered);
            },
          },
          shorten(i === 0 ? "all rows" : one.name, 24),
        ),
      ),
    );
    show(get("partitions"), all.length > 1);
    if (focused && focused.startsWith("partition-") && get(focused)) get(focused).focus();
  }

  function showPrices(reply, asked) {
    const told = (reply.rules || []).map((rule, i) => ({ rule, i })).filter(({ rule }) => rule);
    const most = Math.max(...told.map(({ rule }) => rule.price || 0), 0);
    get("prices").replaceChildren(
      ...told.map(({ rule, i }) => {
        const card = cardOf(asked.rules[i].text);
        const unit = unitOf(rule, card);
        const width = most > 0 ? (100 * (rule.price || 0)) / most : 0;
        const held = `${formatAmount(rule.rate, unit)} ${known(rule.bound) ? `(${rule.sense === ">=" ? "at least" : "at most"} ${formatAmount(rule.bound, unit)})` : ""}`;
        return make(
          "li",
          {},
          make("span", { class: "rule" }, rule.sentence || rule.text),
          make(
            "span",
            { class: "numbers" },
            known(rule.rate) ? held : null,
            typeof rule.worst === "string" ? `: ${shorten(rule.worst, 160)}` : null,
            known(rule.lower) && known(rule.upper)
              ? `, interval ${formatAmount(rule.lower, unit)} to ${formatAmount(rule.upper, unit)}`
              : null,
          ),
          draw(
            "svg",
            { width: "100%", height: 10, "aria-hidden": "true", focusable: "false", class: "price-bar" },
            draw("rect", { x: 0, y: 1, width: "100%", height: 8, rx: 2, class: "settled" }),
            draw("rect", { x: 0, y: 1, width: `${width.toFixed(2)}%`, height: 8, rx: 2, class: "bar" }),
          ),
          make(
            "span",
            { class: "price" },
            rule.price_words || (known(rule.price) ? `price ${roundNumber(rule.price)}` : ""),
          ),
        );
      }),
    );
    if (!told.length) get("prices").replaceChildren(make("li", { class: "note" }, "No rules, no price."));
  }

  // Who changes: the largest flows between decisions, then each group's share.
  function showChanges(reply) {
    const parts = [
      make(
        "p",
        {},
        make("strong", {}, formatShare(reply.changed)),
        " of all decisions differ from those without rules.",
      ),
    ];
    const sets = (reply.kind || start.kind) === "sets";
    const flows = [];
    (reply.flows || []).forEach((row, from) =>
      row.forEach((share, to) => {
        if (from !== to && share > 5e-7) flows.push({ from, to, share });
      }),
    );
    flows.sort((one, other) => other.share - one.share);
    const name = (index) => shorten(reply.actions[index], 22);
    if (flows.length) {
      const most = flows[0].share;
      parts.push(
        makeBars(
          sets ? "Labels that join the likeliest one" : "From one decision to another",
          flows
            .slice(0, 6)
            .map(({ from, to, share }) => ({
              label: `${name(from)} ${sets ? "+" : "→"} ${name(to)}`,
              share,
            })),
          most,
        ),
      );
      if (flows.length > 6) parts.push(makeFlowTable(reply, sets));
    }
    const partitions = [...new Set((reply.changed_by_group || []).map((one) => one.name))];
    const most = Math.max(...(reply.changed_by_group || []).map((one) => one.changed || 0), 0);
    partitions.forEach((group) => {
      const rows = reply.changed_by_group.filter((one) => one.name === group);
      parts.push(
        makeBars(
          `Changed, by ${shorten(group, 30)}`,
          rows.map((one) => ({ label: shorten(one.value, 28), share: one.changed })),
          most,
        ),
      );
    });
    get("changes").replaceChildren(...parts);
  }
  function makeBars(caption, rows, most) {
    return make(
      "table",
      { class: "bars" },
      make("caption", {}, caption),
      make(
        "tbody",
        {},
        rows.map(({ label, share }) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, label),
            make(
              "td",
              {},
              draw(
                "svg",
                { width: "100%", height: 16, "aria-hidden": "true", focusable: "false" },
                draw("rect", {
                  x: 0,
                  y: 2,
                  width: `${(most > 0 ? (100 * share) / most : 0).toFixed(2)}%`,
                  height: 12,
                  rx: 2,
                  class: "bar",
                }),
              ),
            ),
            make("td", {}, formatShare(share)),
          ),
        ),
      ),
    );
  }
  function makeFlowTable(reply, sets) {
    const open = Boolean(document.querySelector("#changes details[open]"));
    return make(
      "details",
      { open },
      make("summary", {}, "All flows"),
      make(
        "div",
        { class: "scroll" },
        make(
          "table",
          { class: "data" },
          make(
            "caption",
            {},
            sets
              ? "Share of rows, by the likeliest label (rows) and what the set holds (columns)"
              : "Share of rows, from (rows) to (columns)",
          ),
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              make("td", {}),
              reply.actions.map((action) => make("th", { scope: "col" }, shorten(action, 16))),
            ),
          ),
          make(
            "tbody",
            {},
            reply.flows.map((row, from) =>
              make(
                "tr",
                {},
                make("th", { scope: "row" }, shorten(reply.actions[from], 20)),
                row.map((share, to) =>
                  make("td", { class: from === to ? "quiet" : null }, formatShare(share)),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  function showRandomness(reply) {
    const chance = reply.random;
    if (!chance)
      return get("random").replaceChildren(make("p", { class: "note" }, "Nothing is known of it."));
    const parts = [
      ["settled", "certain", chance.settled],
      ["leaning", "mostly one decision", chance.leaning],
      ["open", "a draw", chance.open],
    ];
    let begin = 0;
    const title = parts.map(([, words, share]) => `${words} ${formatShare(share)}`).join(", ");
    const bar = makeSvg(
      title,
      22,
      "stack",
      parts.map(([name, , share]) => {
        const piece = draw("rect", {
          x: `${(100 * begin).toFixed(2)}%`,
          y: 0,
          width: `${(100 * (share || 0)).toFixed(2)}%`,
          height: 22,
          class: name,
        });
        begin += share || 0;
        return piece;
      }),
    );
    get("random").replaceChildren(
      bar,
      make(
        "ul",
        { class: "keys" },
        parts.map(([name, words, share]) =>
          make("li", {}, make("span", { class: `key ${name}` }), ` ${words}: ${formatShare(share)}`),
        ),
      ),
    );
  }

  function showFrontier() {
    const rule = state.rules[inHand];
    const card = rule && cardOf(rule.text);
    const place = get("frontier");
    const key = frontierKey();
    say(get("frontier-rule"), card ? card.sentence || card.text : rule ? rule.text : "");
    if (key === null) {
      place.replaceChildren(
        make(
          "p",
          { class: "note" },
          state.rules.length
            ? "Pick a rule that is on and has a level: touch its slider."
            : "Add a rule to see what its levels cost.",
        ),
      );
    } else if (frontier.key === key && frontier.error) {
      place.replaceChildren(make("p", { class: "note" }, frontier.error));
    } else if (frontier.key === key && frontier.body) {
      place.replaceChildren(...drawFrontier(frontier.body, card));
    } else {
      place.replaceChildren(
        make(
          "p",
          { class: "note waiting" },
          frontier.controller ? "Other levels are being solved …" : "Other levels follow once nothing moves.",
        ),
      );
    }
    place.dataset.state = key === null ? "none" : frontier.key === key ? "drawn" : "waiting";
  }
  function drawFrontier(body, card) {
    const WIDE = Math.min(Math.max(get("frontier").clientWidth, 260), 560);
    const HIGH = 230,
      LEFT = 58,
      RIGHT = 14,
      TOP = 12,
      BOTTOM = 40;
    const unit = (answer && answer.cost.unit) || "plain";
    const points = body.levels
      .map((level, i) => ({ level, cost: body.costs[i], price: (body.prices || [])[i] }))
      .filter((one) => known(one.cost))
      .sort((one, other) => one.level - other.level);
    const conflicts = (body.conflicts || []).filter(known);
    const asPredicted = state.view === "observed" && body.view !== "observed";
    const exact = !asPredicted && answer && same(answered, stateNow());
    const cost = exact ? answer.cost.after : interpolate(points, card.level);
    const current = known(cost) ? { level: card.level, cost } : null;
    const levels = [...points.map((one) => one.level), ...conflicts, card.level];
    const costs = [...points.map((one) => one.cost), ...(current ? [current.cost] : [])];
    if (!points.length) return [make("p", { class: "note" }, "At none of these levels can the rules hold.")];
    const across = { low: Math.min(...levels), high: Math.max(...levels) };
    const up = fitScale(costs);
    const x = (level) =>
      LEFT +
      (WIDE - LEFT - RIGHT) *
        (across.high > across.low ? (level - across.low) / (across.high - across.low) : 0.5);
    const y = (cost) =>
      TOP + (HIGH - TOP - BOTTOM) * (1 - (up.high > up.low ? (cost - up.low) / (up.high - up.low) : 0.5));
    const text = (words, tx, ty, anchor, name = "tick") =>
      draw("text", { x: tx, y: ty, "text-anchor": anchor, class: name }, words);
    const parts = [];
    listTicks(up, 4).forEach((tick, _, all) =>
      parts.push(
        lineFrom(LEFT, WIDE - RIGHT, y(tick), y(tick), "grid"),
        text(formatTick(tick, all, unit), LEFT - 8, y(tick) + 4, "end"),
      ),
    );
    const ticks = listTicks(across, 5);
    ticks.forEach((tick) =>
      parts.push(text(formatTick(tick, ticks, card.unit), x(tick), HIGH - BOTTOM + 18, "middle")),
    );
    parts.push(...shadeConflicts(conflicts, points, x, TOP, HIGH - BOTTOM));
    for (let i = 1; i < points.length; i += 1)
      parts.push(
        lineFrom(
          x(points[i - 1].level),
          x(points[i].level),
          y(points[i - 1].cost),
          y(points[i].cost),
          "curve-line",
        ),
      );
    points.forEach((one) =>
      parts.push(draw("circle", { cx: x(one.level), cy: y(one.cost), r: 3.5, class: "point" })),
    );
    parts.push(lineFrom(x(card.level), x(card.level), TOP, HIGH - BOTTOM, "now-line"));
    if (current)
      parts.push(
        draw("circle", { cx: x(current.level), cy: y(current.cost), r: 7, class: "now", id: "frontier-now" }),
      );
    parts.push(
      text(
        card.unit === "points" ? "level of the rule, points" : "level of the rule",
        WIDE - RIGHT,
        HIGH - 4,
        "end",
        "name",
      ),
    );
    const title = `Cost by level: ${points.map((one) => `${formatAmount(one.level, card.unit)}: ${formatAmount(one.cost, unit)}`).join("; ")}`;
    const plot = draw(
      "svg",
      {
        role: "img",
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        width: WIDE,
        height: HIGH,
        class: "plot",
        focusable: "false",
      },
      draw("title", {}, title),
      ...parts,
    );
    const jump = (event) => {
      const box = plot.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * WIDE;
      const share = Math.min(Math.max((place - LEFT) / (WIDE - LEFT - RIGHT), 0), 1);
      moveLevel(inHand, roundTo(across.low + share * (across.high - across.low), card), true);
    };
    plot.addEventListener("click", jump);
    const words = `${answer ? shorten(answer.cost.words || answer.cost.name, 60) : "Cost"} at each level${asPredicted ? ", as the scores predict" : ""}.`;
    const remark = `${words[0].toUpperCase()}${words.slice(1)} Click to go there.${conflicts.length ? " Shaded: the rules cannot hold." : ""}`;
    return [plot, make("p", { class: "note" }, remark)];
  }
  function interpolate(points, level) {
    const after = points.findIndex((one) => one.level >= level);
    if (after < 0) return null;
    if (points[after].level === level) return points[after].cost;
    if (after === 0) return null;
    const [low, high] = [points[after - 1], points[after]];
    return low.cost + ((high.cost - low.cost) * (level - low.level)) / (high.level - low.level);
  }
  function shadeConflicts(conflicts, points, x, top, bottom) {
    if (!conflicts.length) return [];
    const solvable = points.map((one) => one.level);
    const below = conflicts.filter((level) => level < solvable[0]);
    const above = conflicts.filter((level) => level > solvable[solvable.length - 1]);
    const shade = (from, to) =>
      draw("rect", {
        x: x(from),
        y: top,
        width: Math.max(x(to) - x(from), 1),
        height: bottom - top,
        class: "impossible",
      });
    return [
      below.length ? shade(Math.min(...below), Math.max(...below)) : null,
      above.length ? shade(Math.min(...above), Math.max(...above)) : null,
    ].filter(Boolean);
  }

  // ---- A conflict: in words, and a button for each way out. ----

  function showConflict(reply) {
    const conflict = reply.conflict || { words: reply.error || "", rules: [], relaxations: [] };
    const words = String(conflict.words || "");
    const cells = words.indexOf("Too few rows");
    const first = words.split("\n")[0];
    say(
      get("conflict-words"),
      first.charAt(0).toUpperCase() + first.slice(1) + (cells < 0 ? "" : `\n${words.slice(cells)}`),
    );
    get("conflict-rules").replaceChildren(
      ...conflict.rules.map((rule) => {
        const reach = known(rule.reach)
          ? ` can reach ${roundNumber(rule.reach, 4)} while the others listed hold`
          : "";
        return make("li", {}, make("code", {}, rule.text), reach);
      }),
    );
    const least = conflict.relaxations.filter((one) => known(one.level) && state.rules[one.rule]);
    const alone = conflict.rules
      .map(loosenAlone)
      .filter((way) => way && !(least.length === 1 && least[0].rule === way[0].rule));
    const ways = [least, ...alone].filter((way) => way.length);
    get("relaxations").replaceChildren(
      ...ways.map((way) =>
        make(
          "button",
          { type: "button", class: "relax", onclick: () => relax(way) },
          way === least ? make("span", { class: "badge good" }, "least") : null,
          way === least ? " " : null,
          nameWay(way),
        ),
      ),
    );
    show(document.querySelector("#conflict h3"), ways.length > 0);
    new Set(ways.flat().map((one) => one.rule)).forEach((i) =>
      get(`said-${i}`).replaceChildren(make("span", { class: "badge bad" }, "in conflict")),
    );
  }
  // The level that one rule alone can reach, rounded outwards; of rules that are written as they are listed.
  function loosenAlone(listed) {
    const index = state.rules.findIndex((rule) => rule.on && rule.text === listed.text);
    const card = index >= 0 ? cardOf(listed.text) : null;
    const sense = card && card.parts && /([<>]=) $/.exec(card.parts[0]);
    if (!sense || card.parts[1] || !known(listed.reach)) return null;
    const round = sense[1] === "<=" ? Math.ceil : Math.floor;
    const outwards = (sense[1] === "<=" ? 1 : -1) * 1e-6;
    return [{ rule: index, level: tidy(round((listed.reach + outwards) * 1e4) / 1e4) }];
  }
  const formatExactly = (level, unit) =>
    `${signed(String(Number((level * factorOf(unit)).toPrecision(6))))}${unit === "points" || unit === "share" ? SPACE + suffixOf(unit) : ""}`;
  function nameWay(way) {
    const parts = way.map(({ rule, level }) => {
      const card = cardOf(state.rules[rule].text);
      return `${shorten(state.rules[rule].text, 60)} to ${formatExactly(level, card ? card.unit : "plain")}`;
    });
    return `Loosen ${parts.join(" and ")}`;
  }
  async function relax(way) {
    const told = await Promise.all(way.map(({ rule }) => learn(state.rules[rule].text))).catch(() => null);
    if (!told || told.some((card) => !card.parts)) return;
    way.forEach(({ rule, level }, i) => {
      const text = putLevel(told[i], level);
      state.rules[rule].text = text;
      if (!cards.has(text)) cards.set(text, { ...told[i], text, level, sentence: null });
    });
    inHand = way[0].rule;
    commit();
    showDemands();
    request(true);
    get("results").focus({ preventScroll: true });
  }

  // ---- Scenarios: kept under a name, side by side. ----

  const summarize = (reply) => ({
    status: reply.status,
    cost: reply.cost,
    changed: reply.changed,
    rules: reply.rules,
    conflict: Boolean(reply.conflict),
    error: reply.error,
  });

  function fillScenarios(reply, asked) {
    if (reply.status === "cancelled") return;
    kept.forEach((one) => {
      if (!one.answer && same(one.state, asked)) one.answer = summarize(reply);
    });
    showKept();
    solveKept();
  }
  let solvingKept = false;
  async function solveKept() {
    if (solvingKept) return;
    solvingKept = true;
    try {
      for (let one = kept.find((other) => !other.answer); one; one = kept.find((other) => !other.answer)) {
        const reply = await callJson("/api/solve", {
          tab: `${tab}-kept`,
          number: (number += 1),
          ...one.state,
        });
        one.answer = summarize(reply);
        showKept();
      }
    } catch {
      // shown as not solved; the next answer tries again
    }
    solvingKept = false;
  }
  function keep(name) {
    const now = stateNow();
    const solved = answer && same(answered, now);
    kept = kept
      .filter((one) => one.name !== name)
      .concat({ name, state: now, answer: solved ? summarize(answer) : null });
    writeHash();
    showKept();
    if (!solved && !flight) solveKept();
  }
  function goTo(scenario) {
    state = copy(scenario.state);
    inHand = Math.min(inHand, Math.max(state.rules.length - 1, 0));
    commit();
    showDemands();
    request(true);
  }
  const ruleKey = (text) => (cardOf(text) ? cardOf(text).template || text : text);

  function showKept() {
    if (!kept.length)
      return get("kept").replaceChildren(
        make("p", { class: "note" }, "Keep what is on screen under a name, try something else, and compare."),
      );
    const focused = document.activeElement && document.activeElement.id;
    const now = stateNow();
    const columns = [
      ...kept,
      { name: null, state: now, answer: answer && same(answered, now) ? summarize(answer) : null },
    ];
    const keys = [...new Set(columns.flatMap((one) => one.state.rules.map((rule) => ruleKey(rule.text))))];
    const cell = (one, value) => make("td", { class: one.name === null ? "strong" : null }, value);
    const row = (title, value) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, title),
        columns.map((one) => cell(one, value(one))),
      );
    const solved = (one, value) =>
      !one.answer
        ? "…"
        : one.answer.status === "solved"
          ? value(one.answer)
          : one.answer.status === "conflict"
            ? "conflict"
            : NOTHING;
    get("kept").replaceChildren(
      make(
        "table",
        { class: "data kept" },
        make("caption", { class: "unseen" }, "Kept scenarios side by side"),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("td", {}),
            columns.map((one, i) =>
              make(
                "th",
                { scope: "col" },
                one.name === null
                  ? "now"
                  : [
                      make(
                        "button",
                        {
                          type: "button",
                          id: `go-${i}`,
                          class: "go",
                          title: "Go back to it",
                          onclick: () => goTo(one),
                        },
                        shorten(one.name, 30),
                      ),
                      make(
                        "button",
                        {
                          type: "button",
                          id: `drop-${i}`,
                          class: "plain",
                          "aria-label": `Drop ${one.name}`,
                          onclick: () => {
                            kept = kept.filter((other) => other !== one);
                            writeHash();
                            showKept();
                          },
                        },
                        "×",
                      ),
                    ],
              ),
            ),
          ),
        ),
        make(
          "tbody",
          {},
          row("as little as possible of", (one) => make("code", {}, one.state.minimize)),
          row("cost", (one) => solved(one, (reply) => formatAmount(reply.cost.after, reply.cost.unit))),
          row("changed", (one) => solved(one, (reply) => formatShare(reply.changed))),
          start.labelled ? row("rates", (one) => one.state.view) : null,
          keys.map((key) => row(make("code", {}, key), (one) => describeRule(one, key))),
        ),
      ),
    );
    if (focused && get(focused) && document.activeElement.id !== focused) get(focused).focus();
  }
  function describeRule(one, key) {
    const index = one.state.rules.findIndex((rule) => ruleKey(rule.text) === key);
    if (index < 0) return NOTHING;
    const rule = one.state.rules[index];
    if (!rule.on) return "off";
    const card = cardOf(rule.text);
    const told = one.answer && one.answer.rules && one.answer.rules[index];
    const unit = told ? unitOf(told, card) : card ? card.unit : "plain";
    const level =
      card && known(card.level)
        ? make("span", { class: "note" }, ` (${formatAmount(card.level, card.unit)})`)
        : null;
    return [
      told && known(told.rate) ? formatAmount(told.rate, unit) : !one.answer ? "…" : NOTHING,
      level,
    ].filter(Boolean);
  }

  // ---- Out: files. ----

  async function save(kind, button) {
    const said = get("saved");
    const timer = setTimeout(() => (said.textContent = `Writing ${SAVED[kind]} …`), SLOW);
    button.disabled = true;
    try {
      const reply = await call("/api/save", { kind, ...stateNow() });
      const named = /filename="?([\w.-]+)"?/.exec(reply.headers.get("Content-Disposition") || "");
      const address = URL.createObjectURL(await reply.blob());
      make("a", { href: address, download: named ? named[1] : SAVED[kind] }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      clearTimeout(timer);
      say(said, `${SAVED[kind]} is among your downloads.`);
      said.classList.remove("fault");
    } catch (problem) {
      clearTimeout(timer);
      say(said, problem instanceof Refusal ? problem.message : `${SAVED[kind]} was not written.`);
      said.classList.add("fault");
    }
    button.disabled = false;
    button.focus();
  }

  // ---- The theme: the reader's setting until the button is pressed. ----

  const root = document.documentElement;
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  function nameTheme() {
    say(get("theme"), dark() ? "Light" : "Dark");
    get("theme").setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
  }
  let resized = null;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => answer && showFrontier(), 100);
  });
  get("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    nameTheme();
  });
  nameTheme();

  // ---- Everything is connected, and begins. ----

  get("undo").addEventListener("click", () => travel(-1));
  get("redo").addEventListener("click", () => travel(1));
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    const typing =
      event.target instanceof HTMLInputElement &&
      event.target.type === "text" &&
      event.target.value !== (event.target.id === "minimize" ? state.minimize : "");
    if (typing || (key !== "z" && key !== "y")) return;
    event.preventDefault();
    if (document.activeElement instanceof HTMLInputElement && document.activeElement.type === "number")
      document.activeElement.blur();
    travel(key === "y" || event.shiftKey ? 1 : -1);
  });
  attachCompletion(get("minimize"), get("minimize-list"), false);
  const closeRules = attachCompletion(get("new-rule"), get("new-rule-list"), true);
  get("minimize").addEventListener("change", setMinimize);
  get("minimize").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.defaultPrevented) setMinimize();
  });
  get("new-rule").addEventListener("input", () => readRule(false));
  get("add").addEventListener("submit", (event) => {
    event.preventDefault();
    closeRules();
    readRule(true);
  });
  get("keep").addEventListener("submit", (event) => {
    event.preventDefault();
    keep(get("keep-name").value.trim() || `Scenario ${kept.length + 1}`);
    get("keep-name").value = "";
  });
  document.querySelectorAll("#views input").forEach((input) =>
    input.addEventListener("change", () => {
      state.view = input.value;
      commit();
      request(true);
    }),
  );
  document
    .querySelectorAll("[data-save]")
    .forEach((button) => button.addEventListener("click", () => save(button.dataset.save, button)));
  get("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address after # holds the state
    get("results").focus();
  });
  addEventListener("hashchange", () => {
    if (!start || !readHash()) return;
    commit();
    showDemands();
    request(true);
  });

  function showStart() {
    document.title = visible(`${start.title || "scores"} · bylaw studio`);
    say(get("title"), start.title || "bylaw studio");
    say(
      get("subtitle"),
      `${formatCount(start.rows)} rows, ${start.classes.length ? `${start.classes.length} classes` : `${start.actions.length} options`}`,
    );
    say(get("version"), `bylaw ${start.version}. This page talks to this computer only.`);
    show(get("views"), start.labelled);
    showDemands();
    showKept();
  }
  function begin() {
    state = {
      minimize: start.problem.minimize,
      rules: start.problem.rules.map(({ text, on }) => ({ text, on: on !== false })),
      view: start.labelled ? "observed" : "predicted",
    };
    readHash();
    if (!start.labelled) state.view = "predicted";
    commit();
    showStart();
  }
  callJson("/api/start").then(
    (told) => {
      start = told;
      begin();
      request(true);
    },
    (problem) => {
      if (!(problem instanceof Refusal)) return;
      show(get("failure"), true);
      say(get("failure"), problem.message);
    },
  );
})();
