// SPDX-License-Identifier: Apache-2.0
// The theme of the page, and its colors for what is drawn on a canvas.

export type Theme = 'light' | 'dark';

function initial(): Theme {
  const kept = localStorage.getItem('theme');
  if (kept === 'light' || kept === 'dark') return kept;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

let theme = initial();
const colors = new Map<string, string>();

export function currentTheme(): Theme {
  return theme;
}

export function setTheme(next: Theme) {
  theme = next;
  colors.clear();
  localStorage.setItem('theme', next);
  document.documentElement.dataset.theme = next;
}

// The value of a variable of app.css.
export function themeColor(name: string): string {
  let color = colors.get(name);
  if (color === undefined) {
    color = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
    colors.set(name, color);
  }
  return color;
}
