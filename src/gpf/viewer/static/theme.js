// Light, dark, or as the system has it. Views that draw listen to the event "themechange".

const THEMES = ["system", "light", "dark"];

export function watchTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let theme = stored();
  const apply = () => {
    const dark = theme === "dark" || (theme === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    if (button) button.textContent = `Theme: ${theme}`;
    dispatchEvent(new Event("themechange"));
  };
  button?.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("gpf-theme", theme);
    } catch {
      // a page from a file may have no storage; the choice then lasts as long as the page
    }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

function stored() {
  try {
    const held = localStorage.getItem("gpf-theme");
    return THEMES.includes(held) ? held : "system";
  } catch {
    return "system";
  }
}
