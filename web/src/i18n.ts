// SPDX-License-Identifier: Apache-2.0
// The language of the page. A text is a key of the two tables, with {0}, {1}… for its values. {0:node|nodes} is
// "node" if value 0 is 1, else "nodes".
import { en, type Key } from './en';
import { zh } from './zh';

export type { Key };
export type Language = 'en' | 'zh';

function initial(): Language {
  const kept = localStorage.getItem('language');
  if (kept === 'en' || kept === 'zh') return kept;
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

let language: Language = initial();

export function currentLanguage(): Language {
  return language;
}

export function setLanguage(next: Language) {
  language = next;
  localStorage.setItem('language', next);
  document.documentElement.lang = next === 'zh' ? 'zh-CN' : 'en';
}

export function t(key: Key, ...values: (string | number)[]): string {
  const text = (language === 'zh' ? zh : en)[key];
  return text.replace(/\{(\d)(?::(.*?)\|(.*?))?\}/g, (_, n: string, one?: string, many?: string) => {
    const value = String(values[Number(n)] ?? '');
    return one === undefined ? value : value === '1' ? one : many!;
  });
}

// An error of the API server in words: without verb, path and HTTP status of the request, and with the right that
// is missing.
export function plainText(message: string): string {
  return message
    .replace(/\b(GET|POST|PUT|PATCH|DELETE) \/\S*: /g, '')
    .replace(/ \((\w+, )?HTTP \d+( [\w ]+)?\)/g, '')
    .replace(/\w+ in version "\S+" cannot be handled as a \w+: (strict decoding error: )?/, '')
    .replace(
      /(\S+ (".*?" )?is forbidden: )?User ".*?" cannot (\w+) resource "(\S+?)" in API group ".*?" (at the cluster scope|in the namespace "(.*?)").*/,
      (_, _about, _name, verb: string, resource: string, _scope, namespace?: string) =>
        namespace ? t('deniedIn', `${verb} ${resource}`, namespace) : t('denied', `${verb} ${resource}`),
    );
}

// A reason of the placement engine: the text "kind:KIND" if the tables have it, else `kind` with blanks for its hyphens.
export function kindText(kind: string): string {
  const key = `kind:${kind}`;
  return key in en ? t(key as Key) : kind.replaceAll('-', ' ');
}
