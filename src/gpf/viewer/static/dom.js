// Elements from data. Text is always text: nothing here ever reads HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Say something to screen readers.
export function announce(text) {
  document.getElementById("live").textContent = text;
}

// A colour, or another value, that the style sheet names.
export function styleValue(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A message in place of what could not be shown.
export function problem(text) {
  return element("p", { class: "problem", role: "alert" }, text);
}
