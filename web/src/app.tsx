// SPDX-License-Identifier: Apache-2.0
// The frame of all pages: login, navigation, theme, language, and whether the view is current.
import { render } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { AddNodePage } from './add_node';
import { CreatePage, dropDraft } from './create';
import { currentLanguage, setLanguage, t, type Key } from './i18n';
import { MapPage } from './map';
import { NodePage } from './node';
import { Empty, useAfterFrame } from './parts';
import { QuotaPage } from './quota';
import { ServerText } from './server_text';
import { api, ApiError, connect, disconnect, loadSession, useCluster, type Session } from './store';
import { WorkloadPage, WorkloadsPage } from './workloads';

type Theme = 'light' | 'dark';

function firstTheme(): Theme {
  const kept = localStorage.getItem('theme');
  if (kept === 'light' || kept === 'dark') return kept;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

function useTheme(): [Theme, (next: Theme) => void] {
  const [theme, setTheme] = useState(firstTheme);
  // The button changes before the page is drawn again.
  const drawn = useAfterFrame(theme);
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = drawn;
  }, [drawn]);
  const choose = (next: Theme) => {
    localStorage.setItem('theme', next);
    setTheme(next);
  };
  return [theme, choose];
}

function useHash(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listener = () => setHash(location.hash);
    addEventListener('hashchange', listener);
    return () => removeEventListener('hashchange', listener);
  }, []);
  return hash;
}

function decode(part: string | undefined): string {
  try {
    return decodeURIComponent(part ?? '');
  } catch {
    return '';
  }
}

function Page({ hash }: { hash: string }) {
  const [page, first, second] = hash.replace(/^#\/?/, '').split('/');
  const { loaded, complete } = useCluster();
  // The map can show a part of the cluster; the other pages need the whole snapshot.
  if (!(page === '' ? loaded : complete)) return <Empty page title={t('loading')} />;
  switch (page) {
    case '':
      return <MapPage />;
    case 'node':
      return <NodePage name={decode(first)} key={first} />;
    case 'add-node':
      return <AddNodePage />;
    case 'workloads':
      return <WorkloadsPage />;
    case 'workload':
      return <WorkloadPage namespace={decode(first)} name={decode(second)} key={`${first}/${second}`} />;
    case 'create':
      return <CreatePage />;
    case 'quota':
      return <QuotaPage />;
    default:
      return <Empty page title={t('notFound')} />;
  }
}

function Freshness() {
  const { connected, lastEventAt, staleSince, error, loaded } = useCluster();
  const timeOf = (time: number) => new Date(time).toLocaleTimeString(currentLanguage());
  return (
    <div role="status" aria-live="polite">
      {loaded && !connected ? (
        <p class="stale">{t('disconnected', timeOf(lastEventAt))}</p>
      ) : (
        staleSince && (
          <p class="stale">
            {t('stale', timeOf(Date.parse(staleSince)), '')}
            <ServerText text={error} />
          </p>
        )
      )}
    </div>
  );
}

function Login({ message, onDone }: { message: string; onDone: () => void }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState(message);
  const [busy, setBusy] = useState(false);
  const [issuer, setIssuer] = useState('');
  useEffect(() => {
    // If the request fails, users can still log in with a token.
    api<{ issuer?: string }>('/api/v1/login').then((login) => setIssuer(login.issuer ?? ''), () => {});
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      await api('/api/v1/login', { token });
      onDone();
    } catch (failure) {
      const rejected = failure instanceof ApiError && failure.status === 401;
      setError(rejected ? t('loginFailed') : (failure as Error).message);
      setBusy(false);
    }
  };
  return (
    <form class="login" onSubmit={submit}>
      <h1>{t('login')}</h1>
      {issuer && (
        <a class="primary" href="/oidc/login">
          {t('loginWith', issuer)}
        </a>
      )}
      <p>{t('loginHint')}</p>
      <pre tabIndex={0}>kubectl create token NAME -n NAMESPACE</pre>
      <label for="token">{t('token')}</label>
      <input id="token" type="password" autocomplete="off" required value={token} onInput={(e) => setToken(e.currentTarget.value)} />
      <button class="primary" type="submit" disabled={busy}>
        {busy ? t('loggingIn') : t('login')}
      </button>
      <div role="alert">{error && <p class="note bad-note">{error}</p>}</div>
    </form>
  );
}

const kPages: [string, Key][] = [
  ['#/', 'map'],
  ['#/workloads', 'workloads'],
  ['#/create', 'create'],
  ['#/quota', 'quota'],
];

function isCurrent(link: string, hash: string): boolean {
  if (link === '#/') return hash === '' || hash === '#/' || hash.startsWith('#/node/') || hash === '#/add-node';
  if (link === '#/workloads') return hash.startsWith('#/workload');
  return hash.startsWith(link);
}

// For example "ml/train · Workloads · Tessera".
function titleOf(hash: string): string {
  const key = kPages.find(([link]) => isCurrent(link, hash))?.[1];
  const name = hash.split('/').slice(2).map(decode).join('/');
  return [name, key && t(key), t('title')].filter(Boolean).join(' · ');
}

function App() {
  const hash = useHash();
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [message, setMessage] = useState('');
  const [theme, setTheme] = useTheme();
  const [shownLanguage, setShownLanguage] = useState(currentLanguage());
  const main = useRef<HTMLElement>(null);

  const leave = (why: string) => {
    disconnect();
    setMessage(why);
    setSession(null);
  };
  const enter = () =>
    loadSession().then(
      (loaded) => {
        setSession(loaded);
        connect(() => leave(t('sessionEnded')));
      },
      (error) => leave(error instanceof ApiError && error.status === 401 ? '' : (error as Error).message),
    );
  useEffect(() => {
    setLanguage(currentLanguage());
    void enter();
  }, []);
  const shown = useRef(hash);
  useEffect(() => {
    if (shown.current === hash) return;
    shown.current = hash;
    window.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [hash]);

  useEffect(() => {
    document.title = titleOf(hash);
  }, [hash, shownLanguage]);

  const otherTheme = theme === 'dark' ? 'light' : 'dark';
  const otherLanguage = currentLanguage() === 'en' ? 'zh' : 'en';
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        {t('skip')}
      </a>
      <header>
        <a class="brand" href="#/">
          <img src="/icon.svg" alt="" width="24" height="24" /> {t('title')}
        </a>
        {session && (
          <nav aria-label={t('title')}>
            {kPages.map(([link, key]) => (
              <a href={link} key={key} aria-current={isCurrent(link, hash) ? 'page' : undefined}>
                {t(key)}
              </a>
            ))}
          </nav>
        )}
        <span class="spacer" />
        <button type="button" onClick={() => setTheme(otherTheme)}>
          {t(otherTheme === 'dark' ? 'themeDark' : 'themeLight')}
        </button>
        <button
          type="button"
          aria-label={t('languageLabel')}
          onClick={() => (setLanguage(otherLanguage), setShownLanguage(otherLanguage))}
        >
          {t('language')}
        </button>
        {session && <span class="user">{session.user}</span>}
        {session && !session.dashboard && (
          <button type="button" onClick={() => (dropDraft(), void api('/api/v1/logout', {}).finally(() => leave('')))}>
            {t('logout')}
          </button>
        )}
      </header>
      {session && <Freshness />}
      <main id="main" ref={main} tabIndex={-1}>
        {session === undefined && <Empty page title={t('loading')} />}
        {session === null && <Login message={message} onDone={enter} key={message} />}
        {session && <Page hash={hash} />}
      </main>
    </>
  );
}

render(<App />, document.getElementById('app')!);
