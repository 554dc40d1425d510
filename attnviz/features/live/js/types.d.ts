export interface Entry { name: string; shape: number[]; bits: number }
export interface Affine { weight: Float32Array; bias: Float32Array }
export interface Norm { weight: Float32Array; bias: Float32Array; eps: number }
export interface Layer { project: Affine; out: Affine; norm1: Norm; up: Affine; down: Affine; norm2: Norm; scale: number }
export interface Words { table: Float32Array; bias: Float32Array | null; dense: Affine | null; norm: Norm | null }
export interface Model {
  tokens: Float32Array; positions: Float32Array; segment: Float32Array | null; norm: Norm;
  layers: Layer[]; words: Words | null;
  width: number; inner: number; heads: number; offset: number;
  causal: boolean; preNorm: boolean; activation: string;
}
interface Common {
  tokens: string[]; special: number[]; separators: number[]; marks: number[]; mask: number | null; before: number[]; after: number[];
  whole: { text: string; id: number; left: boolean; right: boolean }[];
}
export interface BytePairs extends Common { kind: "bytepairs"; merges: number[]; prefixSpace: boolean }
export interface WordPieces extends Common {
  kind: "wordpieces"; unknown: number; prefix: string; longest: number;
  clean: boolean; chinese: boolean; accents: boolean; lower: boolean; dropped: number[]; signs: number[];
}
export type Vocabulary = BytePairs | WordPieces;
export interface Network {
  entries: Entry[]; layers: number; heads: number; width: number; inner: number;
  causal: boolean; preNorm: boolean; activation: string; eps: number; scales: number[];
  offset: number; maxTokens: number; words: boolean; tied: boolean; vocabulary: Vocabulary; rules: RoleRules;
}
/** What makes a role, and a role that was measured, see roles.js. */
export interface RoleRules {
  least: number; few: number; rest: number; window: number;
  roles: { name: string; evidence: [string, number, number][]; unless: string[]; rests: boolean; color: string; ink: string; code: string }[];
}
export interface Measured { name: string; score: string; mean: number; rows: number; possible: number; rests: boolean }
export interface Role { name: string; color: string; ink: string; code: string }
export interface HeadFacts { id: string; said: string; role: Role | null }
/** `choices` answer what a step asks, `right` is the number of the one that holds, `hides` what would give it away. */
export interface Step {
  say: string; text: string; off: string[]; head: string; at: number | null; key: number | null; spot: string;
  ask: string; choices: string[]; right: number; told: string; hides: string; figure: "" | "shares" | "products" | "heads";
  places: boolean; other: string | null; divisor: number | null; noise: number; bug: string;
}
export interface Lesson { name: string; title: string; about: string; steps: Step[] }
/** A head that looks from one place to another. */
export interface Look { head: string; query: number; key: number }
/** What heads do at a place: the word that is predicted there, where one is; see opening.py. */
export interface Opening { text: string; at: number; answer: number | null; looks: Look[]; switch: string | null }
export interface Page {
  title: string; model: string; text: string; causal: boolean; head: string; opening: Opening | null; labels: string[]; heads: HeadFacts[]; lessons: Lesson[]; off: string[];
  palette: string[]; notes: string[];
  /** how far what is shown has moved by storing the model in few bits, at most, on some texts */
  errors: { weight: number; score: number; share: number };
}
/** `opened` is the number of a head whose queries and keys are wanted. */
export interface Ask { turn: number; text: string; off: number[]; at: number | null; write: number; temperature: number; seed: number; opened: number | null;
  /** of how many of the likeliest tokens one is drawn, 0 for all, and of how much of the probability together */
  topK: number; topP: number;
  /** whose scores come along; whether places have position vectors of their own; a text of as many tokens to run in the second pass */
  head: number; places: boolean; other: string | null;
  /** planted in the attention of layer 0 for the second pass, by the name that attnviz check has for it; "" for none */
  bug: string;
  /** comes back with the answer; whether the roles of heads are to be measured */
  asked: string; roles: boolean;
}
/** What the weights of one head are made of in one pass. */
export interface Opened { queries: Float32Array; keys: Float32Array; values: Float32Array; norms: Float32Array; width: number; S: number; scale: number;
  /** what queries and keys were made of; null where it would be too much */
  split: { query: Split; key: Split } | null;
}
/** Kind and name of every source, and what each adds at every token, [sources, tokens, width]. */
export interface Split { names: [string, string][]; parts: Float32Array }
/** What a normalization reads at a position: mean, standard deviation and norm of its numbers; and the norm of what it gives. */
export interface Normed { mean: number; spread: number; reads: number; gives: number }
/** Norms of what every head of a layer, its attention and its MLP write at a position, and of the residual stream between these and after both; its two normalizations; what the LM head would say there. */
export interface Passage { written: number[]; attended: number; middle: number; fed: number; size: number; normed: Normed[]; guess: { id: number; share: number } | null }
export interface Word { id: number; before: number; after: number }
export interface Answer {
  turn: number; asked: string; roles: Measured[][] | null; ids: number[]; cut: number; at: number; milliseconds: number; added: string;
  before: Float32Array[]; after: Float32Array[] | null; changes: Float32Array | null; words: Word[] | null;
  /** the head whose queries and keys came along, in both passes */
  idsAfter: number[] | null; scoresBefore: Float32Array; scoresAfter: Float32Array | null; scale: number; passage: Passage[]; entering: number;
  opened: string; termsBefore: Opened | null; termsAfter: Opened | null;
}
export interface Said { ready?: number; fast?: boolean; failed?: string; answer?: Answer }
export interface State { text: string; off: Set<string>; head: string; at: number | null; temperature: number; topK: number; topP: number; seed: number;
  /** the lesson, its step from 0, and the answer that was chosen in it, or -1 */
  lesson: string; step: number; told: number;
  /** whether places have position vectors of their own; what the second pass reads; by what scores are divided, null for √d; the variance of a key's length */
  places: boolean; other: string | null; divisor: number | null; noise: number;
  /** what is planted in the attention of layer 0, "" for nothing */
  bug: string;
  /** the key whose weight is explained; and the one that was clicked last */
  why: number | null; key: number | null;
}
