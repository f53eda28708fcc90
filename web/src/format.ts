// SPDX-License-Identifier: Apache-2.0
// Amounts and times for people, and tables as CSV.

export function memoryText(bytes: number): string {
  const gib = bytes / 2 ** 30;
  if (gib >= 1 || bytes === 0) return `${Number(gib.toFixed(1))} GiB`;
  return `${Math.round(bytes / 2 ** 20)} MiB`;
}

export function gpuText(milli: number): string {
  return String(Number((milli / 1000).toFixed(2)));
}

export function ageText(created: number): string {
  const seconds = Math.max(0, Date.now() / 1000 - created);
  if (created <= 0) return '–';
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const tenantColors = new Map<string, number>();

// The color of a namespace: one of twelve numbers, always the same for the same name.
export function tenantColor(namespace: string): number {
  let color = tenantColors.get(namespace);
  if (color !== undefined) return color;
  let hash = 0;
  for (const c of namespace) hash = (hash * 31 + c.codePointAt(0)!) >>> 0;
  color = hash % 12;
  tenantColors.set(namespace, color);
  return color;
}

// A cell that begins with = + - @ gets a quote in front, because spreadsheets would run it as a formula.
function cell(value: string | number): string {
  let text = String(value);
  if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvOf(head: string[], rows: (string | number)[][]): string {
  return [head, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

export function download(name: string, text: string) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
