// SPDX-License-Identifier: Apache-2.0
// Bundles the page into dist/. Run by scripts/web, in a folder with node_modules.
import { build } from 'esbuild';
import { copyFile } from 'node:fs/promises';

await build({
  entryPoints: ['src/app.tsx', 'src/app.css'],
  bundle: true,
  minify: true,
  outdir: 'dist',
  format: 'esm',
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  logLevel: 'warning',
});
await copyFile('src/index.html', 'dist/index.html');
await copyFile('src/icon.svg', 'dist/icon.svg');
