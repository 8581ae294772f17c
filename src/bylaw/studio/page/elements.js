// Elements. Text goes in as text: nothing on this page ever parses markup.

const SVG = "http://www.w3.org/2000/svg";
const root = document.documentElement;
const get = (id) => document.getElementById(id);
const pause = (time) => new Promise((done) => setTimeout(done, time));

// What is invisible, or turns the direction of writing, is shown as an escape.
const HIDDEN =
  /[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\p{Surrogate}\u{e0000}-\u{e007f}]/gu;

function escapeLetter(letter) {
  const code = letter.codePointAt(0).toString(16);
  if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
  return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
}
const visible = (text) => String(text).replace(HIDDEN, escapeLetter);
const show = (element, shown) => (element.hidden = !shown);

// The same words again are no news: live regions stay silent.
function say(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

const asNodes = (children) =>
  children
    .flat(3)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : visible(child)));

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : visible(value));
  }
  element.append(...asNodes(children));
  return element;
}
const make = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

// New content in an element; a user who works there by keyboard stays at the same place.
function refill(element, ...children) {
  const held = document.activeElement;
  const id = held && held !== element && element.contains(held) ? held.id : "";
  element.replaceChildren(...asNodes(children));
  if (id && get(id)) get(id).focus({ preventScroll: true });
}

// What screen readers are told: one sentence, at once or when nothing has changed for a while.
let announcing = null;
function announce(text, delay = 0) {
  clearTimeout(announcing);
  if (delay) announcing = setTimeout(() => say(get("spoken"), text), delay);
  else say(get("spoken"), text);
}

// A map that forgets what it has held longest, unless it is in use.
function remember(map, key, value, most, used = () => false) {
  map.delete(key);
  map.set(key, value);
  for (const old of map.keys()) {
    if (map.size <= most) return;
    if (old !== key && !used(old)) map.delete(old);
  }
}
