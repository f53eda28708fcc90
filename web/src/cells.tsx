// SPDX-License-Identifier: Apache-2.0
// The GPUs of a block of cards, as one drawing with a path for each color. A screen has more than a
// thousand GPUs, and an element for each GPU would take most of the time of each change. The labels of
// the cards say the same in words.
import { tenantColor } from './format';
import { gaugeOf, type Gauge, type NodeGauges } from './gauges';
import { cluster, hiddenPart, isOffered, type Gpu, type Held, type Node } from './store';

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

// The height of the cells of a node with `gpus` GPUs.
export function cellsHeight(gpus: number): number {
  return Math.ceil(gpus / kPerLine) * kPitch;
}

function usedPart(gpu: Gpu, mode: Mode): number {
  const memory = gpu.memory > 0 ? gpu.used / gpu.memory : 0;
  return Math.min(1, mode === 'memory' ? memory : Math.max(gpu.usedMilli / 1000, memory));
}

// How a part of a cell looks: a color of app.css, or one of the four constants below.
export type Filling = string;
export const kBroken = 'broken';
export const kHidden = 'hidden'; // a tenant that the console does not show
export const kUnknown = 'unknown';
export const kUnmeasured = 'unmeasured'; // NVML has no such value of MIG instances

export const fillingOfTenant = (namespace: string): Filling => `tenant${tenantColor(namespace)}`;

function fillingOfHolder([uid, , , namespace]: Held): Filling {
  const shown = cluster.pods.get(uid)?.namespace ?? namespace;
  return shown === undefined ? kHidden : fillingOfTenant(shown);
}

function heatOf(degrees: number): Filling {
  return degrees >= kHot ? 'bad' : degrees >= kWarm ? 'warn' : 'good';
}

// The outline of a part of a cell from its upper left corner. Only corners of the cell are round.
function outline(width: number, isFirst: boolean, isLast: boolean): string {
  const left = isFirst ? Math.min(kRadius, width) : 0;
  const right = isLast ? Math.min(kRadius, width - left) : 0;
  const corner = (radius: number, x: number, y: number) => `a${radius} ${radius} 0 0 1 ${x * radius} ${y * radius}`;
  const across = width - left - right;
  return (
    `m${left} 0h${across}${corner(right, 1, 1)}v${kCell - 2 * right}${corner(right, -1, 1)}` +
    `h${-across}${corner(left, -1, -1)}v${2 * left - kCell}${corner(left, 1, -1)}z`
  );
}

// The outlines of a line of cells, from the upper left corner of the line.
const lineOf = (cells: number) => Array(cells).fill(outline(kCell, true, true)).join(`m${kPitch - kRadius} 0`);
const kLines = Array.from({ length: kPerLine + 1 }, (_, cells) => lineOf(cells));

const kSigns: Record<Filling, string> = {
  [kBroken]: 'm3 .5h10a2.5 2.5 0 0 1 2.5 2.5v10a2.5 2.5 0 0 1-2.5 2.5h-10a2.5 2.5 0 0 1-2.5-2.5v-10a2.5 2.5 0 0 1 2.5-2.5zm2 4l6 7m0-7l-6 7',
  [kUnknown]: 'm5.5 6.2a2.5 2.5 0 1 1 3.8 2.1q-1.3.8-1.3 2m0 1.5v1.2',
  [kUnmeasured]: 'm4.5 8h7',
};

// A path for each filling, and for the fillings of old values.
class Drawing {
  private readonly paths = new Map<string, string>();
  x = 0; // of the cell to fill
  y = 0;
  old = false;

  private add(filling: Filling, x: number, shape: string) {
    const key = this.old ? `${filling} old` : filling;
    this.paths.set(key, `${this.paths.get(key) ?? ''}M${x} ${this.y}${shape}`);
  }

  // Draws `cells` free cells in a line, beginning at the cell to fill.
  free(cells: number) {
    this.add('free', this.x, kLines[cells]!);
  }

  // Fills the cell between two parts of its width.
  fill(filling: Filling, from = 0, to = 1) {
    if (to <= from) return;
    const shape = kSigns[filling] ?? (to - from === 1 ? kLines[1]! : outline((to - from) * kCell, from === 0, to === 1));
    this.add(filling, this.x + from * kCell, shape);
  }

  elements() {
    return [...this.paths].map(([key, path]) => (
      <path key={key} class={key} style={{ '--fill': `var(--${key.split(' ')[0]})` }} d={path} />
    ));
  }
}

// Fills the cell with the parts of its holders side by side, each as wide as its share. The part of hidden pods is last.
function fillHolders(drawing: Drawing, gpu: Gpu) {
  let from = 0;
  const slice = (filling: Filling, milli: number, bytes: number) => {
    const to = Math.min(1, from + Math.max(milli / 1000, gpu.memory > 0 ? bytes / gpu.memory : 0));
    drawing.fill(filling, from, to);
    from = to;
  };
  for (const held of gpu.held) slice(fillingOfHolder(held), held[1], held[2]);
  const rest = hiddenPart(gpu);
  slice(kHidden, rest.milli, rest.bytes);
}

function fillCell(drawing: Drawing, gpu: Gpu, mode: Mode, gauges?: NodeGauges) {
  if (!isOffered(gpu)) return drawing.fill(kBroken);
  if (mode === 'health') return drawing.fill(gpu.state === 'healthy' ? 'good' : 'warn');
  if (mode === 'tenant') return fillHolders(drawing, gpu);
  if (!isGauge(mode)) return drawing.fill('used', 0, usedPart(gpu, mode));
  const value = gaugeOf(gauges, gpu, mode);
  if (value === null) return drawing.fill(gpu.slice ? kUnmeasured : kUnknown);
  drawing.fill(mode === 'temperature' ? heatOf(value) : 'used', 0, Math.min(1, value / 100));
}

export interface CellsProps {
  nodes: Node[];
  gauges: (NodeGauges | undefined)[]; // of each node, if the mode shows them
  mode: Mode;
  columns: number; // of cards
  across: number; // from one card to the next of its row
  down: number; // from one row of cards to the next
}

// The pattern of stripes that app.css uses in drawings.
export function Stripes() {
  return (
    <svg class="unseen" aria-hidden="true">
      <pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="stripe" width="2" height="4" />
      </pattern>
    </svg>
  );
}

// One cell, for a legend.
export function Cell({ filling, old = false }: { filling: Filling; old?: boolean }) {
  const drawing = new Drawing();
  drawing.old = old;
  drawing.free(1);
  drawing.fill(filling);
  return (
    <svg class="cell" aria-hidden="true">
      {drawing.elements()}
    </svg>
  );
}

export function Cells({ nodes, gauges, mode, columns, across, down }: CellsProps) {
  const drawing = new Drawing();
  nodes.forEach((node, i) => {
    // Whole pixels, so that cells are sharp.
    const left = Math.round((i % columns) * across + kLeft);
    const top = Math.round(Math.floor(i / columns) * down + kTop);
    drawing.old = gauges[i]?.stale ?? false;
    node.gpus.forEach((gpu, at) => {
      const place = at % kPerLine;
      drawing.x = left + place * kPitch;
      drawing.y = top + Math.floor(at / kPerLine) * kPitch;
      if (place === 0) drawing.free(Math.min(kPerLine, node.gpus.length - at));
      fillCell(drawing, gpu, mode, gauges[i]);
    });
  });
  return (
    <svg class="cells" aria-hidden="true">
      {drawing.elements()}
    </svg>
  );
}
