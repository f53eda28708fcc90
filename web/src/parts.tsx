// SPDX-License-Identifier: Apache-2.0
// Elements and hooks that several pages use.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { t } from './i18n';
import { ServerText } from './server_text';
import { api, ApiError } from './store';

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

// Elements of cards and rows are reused, so after a change the element with the focus may show another object.
// Then this hook moves the focus to the element that now shows the first object. `key`: the data attribute that
// names the object.
export function useSteadyFocus(list: { current: HTMLElement | null }, key: 'node' | 'item') {
  const name = useRef('');
  useLayoutEffect(() => {
    const active = document.activeElement as HTMLElement | null;
    const now = active?.dataset[key];
    if (!name.current || !now || now === name.current) return;
    const other = list.current?.querySelector<HTMLElement>(`[data-${key}="${CSS.escape(name.current)}"]`);
    other ? other.focus({ preventScroll: true }) : (name.current = now);
  });
  return (event: FocusEvent) => (name.current = (event.target as HTMLElement).closest<HTMLElement>(`[data-${key}]`)?.dataset[key] ?? '');
}

// A box in which a wide table scrolls. The keyboard can focus it.
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

interface TableProps {
  label: string;
  columns: string[];
  class?: string;
  children: ComponentChildren; // rows
}

export function Table({ label, columns, class: name, children }: TableProps) {
  return (
    <Scroll label={label}>
      <table class={name}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col">{column}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Scroll>
  );
}

// Runs `task` after the browser has shown the next frame. Returns a function that cancels the task.
export function afterFrame(task: () => void): () => void {
  let timer = 0;
  const frame = requestAnimationFrame(() => (timer = window.setTimeout(task)));
  return () => (cancelAnimationFrame(frame), clearTimeout(timer));
}

// `value` as of the last frame, for elements that take long to draw.
export function useAfterFrame<T>(value: T): T {
  const [shown, setShown] = useState(value);
  useLayoutEffect(() => (shown === value ? undefined : afterFrame(() => setShown(value))), [value]);
  return shown;
}

// A field whose text takes effect after the browser has shown the text. So typed letters appear at once, even if
// filtering thousands of objects takes long.
export function Filter({ placeholder, onChange }: { placeholder: string; onChange: (text: string) => void }) {
  const [text, setText] = useState('');
  useLayoutEffect(() => afterFrame(() => onChange(text.trim().toLowerCase())), [text]);
  return (
    <label>
      {t('filter')}
      <input type="search" placeholder={placeholder} value={text} onInput={(e) => setText(e.currentTarget.value)} />
    </label>
  );
}

export type Loaded<T> = { data?: T; error?: string; failure?: Error };

// Loads when `key` changes.
export function useLoaded<T>(key: string, load: () => Promise<T>): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({});
  useEffect(() => {
    let current = true;
    load().then(
      (data) => current && setLoaded({ data }),
      (failure: Error) => current && setLoaded({ error: failure.message, failure }),
    );
    return () => {
      current = false;
    };
  }, [key]);
  return loaded;
}

// The models of the cluster's GPUs, also for users who may not list nodes.
export function useModels(): string[] {
  return useLoaded('', () => api<{ models: string[] }>('/api/v1/models')).data?.models ?? [];
}

// A copy of `value` that changes at most once in `pause` milliseconds.
export function usePaced<T>(value: T, pause: number): T {
  const [shown, setShown] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    if (shown === value) return;
    const timer = setTimeout(() => {
      last.current = Date.now();
      setShown(value);
    }, Math.max(0, last.current + pause - Date.now()));
    return () => clearTimeout(timer);
  }, [value, shown]);
  return shown;
}

export function ErrorNote({ message }: { message: string }) {
  return (
    <p class="note bad-note" role="alert">
      {t('error', '')}
      <ServerText text={message} />
    </p>
  );
}

// The rights that the user lacks for each control, as the API server says; none until it has answered. The API
// server authorizes each write in any case.
export type MissingRights = Partial<Record<'cordon' | 'drain' | 'mode' | 'quota', string[]>>;

export function useMissingRights(): MissingRights {
  return useLoaded('', () => api<MissingRights>('/api/v1/missing-rights')).data ?? {};
}

// Says below a control which rights the user lacks for it.
export function Lacking({ id, rights }: { id: string; rights?: string[] }) {
  if (!rights?.length) return null;
  return (
    <p class="hint" id={id}>
      {t('lacking', rights.join(', '))}
    </p>
  );
}

// Why measured values of agents cannot be read: mostly a missing right, or a node without an agent.
export function UsageFailure({ error }: { error: Error }) {
  const status = error instanceof ApiError ? error.status : 0;
  if (status === 403) return <p class="hint">{t('forbiddenUse')}</p>;
  if (status === 404) {
    return (
      <p class="hint">
        <ServerText text={error.message} />
      </p>
    );
  }
  return <ErrorNote message={error.message} />;
}
