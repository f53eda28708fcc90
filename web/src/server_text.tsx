// SPDX-License-Identifier: Apache-2.0
// Sentences of the server, the API server and agents, which are English. The page translates the frequent
// sentences. It marks the other sentences as English, so that screen readers speak them as English.
import { currentLanguage, kindText, t, type Key } from './i18n';

// Why a pod waits, or why a node has no room for it. The sentences are from src/kube/selectors.cc,
// src/ledger/ledger.cc, src/placement/explain.cc, src/placement/quota.cc and src/console/cluster_model.cc.
const kReasons: [RegExp, Key][] = [
  [/^node is cordoned$/, 'kind:cordoned'],
  [/^node is not ready$/, 'kind:not-ready'],
  [/^the node selector (\S+) does not match$/, 'server:selector'],
  [/^the required node affinity does not match the node's labels$/, 'kind:node-affinity'],
  [/^node does not offer (\S+)$/, 'server:notOffered'],
  [/^taint (\S+) is not tolerated$/, 'server:taint'],
  [/^(\S+) CPU wanted, (\S+) free$/, 'server:cpu'],
  [/^(\S+ \S+) of memory wanted, (\S+ \S+) free$/, 'server:memory'],
  [
    /^namespace "([^"]*)" may use (\S+) GPUs of model (.+): (\S+) used, (\S+) left, (\S+) wanted$/,
    'server:quota',
  ],
  [/^held back by scheduling gate (\S+)$/, 'gatesHold'],
];

// The reasons in a summary of all nodes, with the keys of their translations. The summary is from
// src/placement/explain.cc.
const kPhrases: Record<string, string> = {
  unschedulable: 'cordoned',
  'insufficient cpu': 'cpu',
  'insufficient memory': 'memory',
  'no such GPU': 'no-gpu',
  'too few GPUs': 'too-few',
  'insufficient free GPUs': 'busy',
  'containers that fit only one by one': 'together',
  'other MIG profile': 'other-kind',
  'other GPU model': 'other-model',
  'GPUs that the pod does not allow': 'other-gpu',
  'unhealthy GPUs': 'unhealthy',
  'too small GPUs': 'too-small',
  'GPUs held whole': 'held-whole',
  'shared GPUs': 'shared',
  'insufficient GPU compute': 'compute',
  'insufficient GPU memory': 'gpu-memory',
};

// "0/3 nodes have room: 2 too few GPUs, 1 unschedulable", or "3/3 nodes have room, but REASON", which is from
// src/console/insight.cc.
function translateSummary(text: string): string | null {
  const unused = /^(\d+)\/(\d+) nodes have room, but (.*)$/.exec(text);
  if (unused) {
    const reason = translated(unused[3]!);
    return reason === null ? null : t('server:unused', unused[1]!, unused[2]!, reason);
  }
  const found = /^(\d+)\/(\d+) nodes have room(?:: (.*))?$/.exec(text);
  if (!found) return null;
  const reasons: string[] = [];
  for (const part of found[3]?.split(', ') ?? []) {
    const [, nodes, phrase = ''] = /^(\d+) (.*)$/.exec(part) ?? [];
    if (!(phrase in kPhrases)) return null;
    reasons.push(t('server:nodes', nodes!, kindText(kPhrases[phrase]!)));
  }
  return t('server:room', found[1]!, found[2]!) + reasons.join(t('server:comma'));
}

// null: no translation.
function translated(text: string): string | null {
  for (const [pattern, key] of kReasons) {
    const found = pattern.exec(text);
    if (found) return t(key, ...found.slice(1));
  }
  return translateSummary(text);
}

export function ServerText({ text }: { text?: string }) {
  if (!text || currentLanguage() === 'en') return <>{text}</>;
  const own = /\p{Script=Han}/u.test(text) ? text : translated(text);
  return own === null ? <span lang="en">{text}</span> : <>{own}</>;
}
