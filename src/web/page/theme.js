// Chooses light or dark before anything is drawn: what this browser was told, else what its system says.
"use strict";

(() => {
  const NAMES = { auto: "as the system", light: "light", dark: "dark" };
  const root = document.documentElement;
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("theme") || "auto";
  } catch {
    // Without storage it is as the system says, each time anew.
  }

  function show() {
    if (!(chosen in NAMES)) chosen = "auto";
    if (chosen === "auto") delete root.dataset.theme;
    else root.dataset.theme = chosen;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${NAMES[chosen]}`;
  }

  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      const names = Object.keys(NAMES);
      chosen = names[(names.indexOf(chosen) + 1) % names.length];
      try {
        localStorage.setItem("theme", chosen);
      } catch {
        // It holds until the page is closed.
      }
      show();
    });
  });
})();
