// SPDX-License-Identifier: Apache-2.0
// The GPUs of a block of cards, drawn on one canvas: a screen has more than a thousand, and an element
// for each would take most of the time of each change. The labels of the cards say the same in words.
import { tenantColor } from './format';
import { gaugeOf, type Gauge, type NodeGauges } from './gauges';
import { cluster, hiddenPart, works, type Gpu, type Held, type Node } from './store';
import { currentTheme, themeColor } from './theme';

export type Mode = 'allocation' | 'memory' | 'tenant' | 'health' | Gauge;

const kCell = 16;
const kPitch = 18; // from one cell to the next
const kRadius = 3;
const kPerLine = 8;
// From the corner of a card to its first cell: border, padding and name of .card in app.css.
const kLeft = 9;
const kTop = 27;

// In degrees Celsius: most GPUs for servers slow down between 85 and 90.
export const kWarm = 60;
export const kHot = 80;

export const isGauge = (mode: Mode): mode is Gauge => mode === 'utilization' || mode === 'temperature';

// The height of the cells of `gpus` GPUs.
export function cellsHeight(gpus: number): number {
  return Math.ceil(gpus / kPerLine) * kPitch;
}

export function usedPart(gpu: Gpu, mode: Mode): number {
  const memory = gpu.memory > 0 ? gpu.used / gpu.memory : 0;
  return Math.min(1, mode === 'memory' ? memory : Math.max(gpu.usedMilli / 1000, memory));
}

function fillingOfHolder([uid, , , namespace]: Held): string {
  const shown = cluster.pods.get(uid)?.namespace ?? namespace;
  return shown === undefined ? kHidden : `tenant${tenantColor(shown)}`;
}

function heatOf(degrees: number): string {
  return degrees >= kHot ? 'bad' : degrees >= kWarm ? 'warn' : 'good';
}

// What a cell is filled with: a color of the theme, or one of these.
const kHidden = 'hidden'; // a tenant that the console does not show
const kBroken = 'broken';
const kUnknown = 'unknown';

function stripes(context: OffscreenCanvasRenderingContext2D) {
  const tile = new OffscreenCanvas(4, 4);
  const half = tile.getContext('2d')!;
  half.fillStyle = themeColor('muted');
  half.fillRect(0, 0, 2, 4);
  const pattern = context.createPattern(tile, 'repeat')!;
  pattern.setTransform(new DOMMatrix().rotate(-45));
  return pattern;
}

function sign(context: OffscreenCanvasRenderingContext2D, text: string, color: string) {
  context.font = '700 12px sans-serif';
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillStyle = themeColor(color);
  context.fillText(text, kCell / 2, kCell / 2);
}

function paint(context: OffscreenCanvasRenderingContext2D, filling: string) {
  const color = { [kBroken]: 'bad-bg', [kUnknown]: 'free' }[filling] ?? filling;
  context.fillStyle = filling === kHidden ? stripes(context) : themeColor(color);
  context.beginPath();
  context.roundRect(0, 0, kCell, kCell, kRadius);
  context.fill();
  if (filling === kUnknown) sign(context, '?', 'muted');
  if (filling !== kBroken) return;
  context.strokeStyle = themeColor('bad');
  context.beginPath();
  context.roundRect(0.5, 0.5, kCell - 1, kCell - 1, kRadius - 0.5);
  context.stroke();
  sign(context, '×', 'bad');
}

const pictures = new Map<string, ImageBitmap>();

// The picture of a line of cells that are filled alike. Copying takes less time than drawing shapes
// and letters, and a line less than each of its cells.
function pictureOf(filling: string, scale: number): ImageBitmap {
  const key = `${filling} ${scale} ${currentTheme()}`;
  let picture = pictures.get(key);
  if (!picture) {
    const canvas = new OffscreenCanvas(Math.ceil(kPerLine * kPitch * scale), Math.ceil(kCell * scale));
    const context = canvas.getContext('2d')!;
    context.scale(scale, scale);
    for (let i = 0; i < kPerLine; i++, context.translate(kPitch, 0)) paint(context, filling);
    picture = canvas.transferToImageBitmap();
    pictures.set(key, picture);
  }
  return picture;
}

// Fills a cell, which is free, between two parts of its width.
type Fill = (filling: string, from: number, to: number) => unknown;

// Slices side by side, each as wide as its share; what the console hides is the last one.
function fillHolders(fill: Fill, gpu: Gpu) {
  const part = (milli: number, bytes: number) => Math.max(milli / 1000, gpu.memory > 0 ? bytes / gpu.memory : 0);
  const slices: [string, number][] = gpu.held.map((held) => [fillingOfHolder(held), part(held[1], held[2])]);
  const rest = hiddenPart(gpu);
  slices.push([kHidden, part(rest.milli, rest.bytes)]);
  let from = 0;
  for (const [filling, width] of slices) {
    const to = Math.min(1, from + width);
    fill(filling, from, to);
    from = to;
  }
}

function fillCell(fill: Fill, gpu: Gpu, mode: Mode, gauges?: NodeGauges) {
  if (!works(gpu)) return fill(kBroken, 0, 1);
  if (mode === 'health') return fill(gpu.state === 'healthy' ? 'good' : 'warn', 0, 1);
  if (mode === 'tenant') return fillHolders(fill, gpu);
  if (!isGauge(mode)) return fill('used', 0, usedPart(gpu, mode));
  const value = gaugeOf(gauges, gpu, mode);
  if (value === null) return fill(kUnknown, 0, 1);
  fill(mode === 'temperature' ? heatOf(value) : 'used', 0, Math.min(1, value / 100));
}

export interface Cells {
  nodes: Node[];
  gauges: (NodeGauges | undefined)[]; // of each node, if the mode shows them
  mode: Mode;
  columns: number; // of cards
  across: number; // from one card to the next
  down: number; // likewise
  scale: number; // pixels of the screen for one of the page
}

export function drawCells(canvas: HTMLCanvasElement, { nodes, gauges, mode, columns, across, down, scale }: Cells) {
  const context = canvas.getContext('2d')!;
  // Also clears the canvas.
  canvas.width = Math.ceil(((columns - 1) * across + kLeft + kPerLine * kPitch) * scale);
  canvas.height = Math.ceil(Math.ceil(nodes.length / columns) * down * scale);
  canvas.style.width = `${canvas.width / scale}px`;
  canvas.style.height = `${canvas.height / scale}px`;
  context.scale(scale, scale);
  let left = 0;
  let top = 0;
  const copy = (filling: string, from: number, width: number) => {
    const picture = pictureOf(filling, scale);
    const [x, y] = [from * scale, picture.height];
    context.drawImage(picture, x, 0, width * scale, y, left + from, top, width, y / scale);
  };
  const fill: Fill = (filling, from, to) => to > from && copy(filling, from * kCell, (to - from) * kCell);
  nodes.forEach((node, i) => {
    const x = ((i % columns) * across + kLeft) * scale;
    const y = (Math.floor(i / columns) * down + kTop) * scale;
    context.globalAlpha = gauges[i]?.stale ? 0.4 : 1;
    for (let at = 0; at < node.gpus.length; at += kPerLine) {
      const line = node.gpus.slice(at, at + kPerLine);
      // On a pixel of the screen, so that cells are sharp.
      left = Math.round(x) / scale;
      top = Math.round(y + (at / kPerLine) * kPitch * scale) / scale;
      copy('free', 0, line.length * kPitch);
      for (const gpu of line) {
        fillCell(fill, gpu, mode, gauges[i]);
        left += kPitch;
      }
    }
  });
}
