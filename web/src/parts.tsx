// SPDX-License-Identifier: Apache-2.0
// What several pages use.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { t } from './i18n';

// `page`: the whole page is empty, so the title is its heading.
export function Empty({ title, hint, page }: { title: string; hint?: string; page?: boolean }) {
  return (
    <div class="empty" role="status">
      {page ? <h1 class="empty-title">{title}</h1> : <p class="empty-title">{title}</p>}
      {hint && <p>{hint}</p>}
    </div>
  );
}

export function Bar({ part, label }: { part: number; label: string }) {
  return (
    <span class="bar-cell">
      <span class="bar" aria-hidden="true">
        <span class="slice used" style={{ width: `${Math.min(1, part) * 100}%` }} />
      </span>
      {label}
    </span>
  );
}

// Wide tables scroll inside their box, which the keyboard reaches.
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

export type Loaded<T> = { data?: T; error?: string };

// Loads when `key` changes.
export function useLoaded<T>(key: string, load: () => Promise<T>): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({});
  useEffect(() => {
    let current = true;
    load().then(
      (data) => current && setLoaded({ data }),
      (error: Error) => current && setLoaded({ error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [key]);
  return loaded;
}

export function ErrorNote({ message }: { message: string }) {
  return (
    <p class="note bad-note" role="alert">
      {t('error', message)}
    </p>
  );
}
