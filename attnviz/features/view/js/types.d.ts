/** The shapes of the page's data and state; for the type checker and for readers only. */
import type { Painter } from "./drawing.js";

export interface Role { name: string; color: string; ink: string; code: string; reason: string; source: string; user: string }
/** `user` is the qualified name of a function that is no part of attnviz; empty for its own. */
export interface ScoreDef { name: string; formula: string; source: string; unit: string; user: string }
/** Mean, chance, lift, rows. */
export type ScoreValue = [number | null, number | null, number | null, number];
export interface HeadRole {
  name: string; title: string; code: string; given: boolean; score: string; numbers: ScoreValue; few: boolean; rests: boolean; said: string; possible: string;
  rival: [string, number] | null;
}
/** What a head's weights are made of; its numbers are in a chunk of their own, see terms.js. */
export interface TermsData {
  chunk: number; width: number; scale: number; softcap: number | null; sink: number | null;
  bias: "" | "key" | "distance" | "whole"; written: boolean; turned: boolean | null;
  causal: boolean; window: number | null; bits: boolean; error: number;
  /** Kind and name of every source of queries and keys; null where they are not known. */
  origins: { query: [string, string][]; key: [string, string][] } | null;
}
/** `sink` is the key with the most weight in all; null where it is not known. A mean has a name (`called`) and a title. */
export interface HeadData { index: number; top: number; whole: boolean; roles: HeadRole[]; scores: ScoreValue[]; sink: number | null; terms: TermsData | null; called?: string; title?: string }
/**
 * Which keys queries may attend to: by distance, or in bits of every head (`each`) or of all of them.
 * `unselected` are bits of the keys that the layer's indexer did not select, where one selects.
 */
export interface ReachData { causal: boolean; window: number | null; sink: boolean; bits: { chunk: number; each: boolean } | null; unselected?: number }
/** `reach` is null where it is not known which keys may be attended to. */
export interface SiteData { layer: number; causal: boolean; chunk: number; heads: HeadData[]; reach: ReachData | null }
/** `opening` is the head to show first. */
/**
 * `quantity` and `formula` say of what the maps are; `full` is a weight of 1, or the largest norm of
 * any head; `error` is how far a number can be off.
 */
export interface KindData {
  kind: string; title: string; queries: number; keys: number; opening: string; sites: SiteData[];
  quantity: string; formula: string; full: number; error: number;
  /** whether what counts as a head is a layer */
  whole: boolean;
  /** what each layer of a hybrid is, those without heads too */
  mixers?: string[];
  /** which of the page's planes has these heads; null where their likeness is not known */
  alike: number | null;
  /** what the opening head shows, the query and key to see it at, and how sure that is */
  see: { said: string; pair: [number, number] | null; weight: number | null; hedge: string; doubt: string } | null;
}
/** Of each head its place x, y, then the heads most like it and their distances, the nearest first. */
export type Placed = [number, number, ...[string, number][]];
/** Heads by likeness: `kept` is the share of the squared distances that a plane keeps. */
export interface PlaneData { rows: number; texts: number; kept: number; heads: Record<string, Placed> }
export interface AxisData {
  labels: string[]; inline: string[]; gaps: number[]; special: number[]; separators: number[];
  segments: number[]; starts: number[]; words: string[];
  /** how many of the last tokens the model wrote itself */
  written: number;
  /** its named parts, first tokens and ends */
  spans: { name: string; ranges: [number, number][] }[];
  /** where each token stands in the scene: its patch or frame, -1 nowhere, -2 after the end; or empty */
  cells: number[];
}
/**
 * What the tokens stand in: a picture in rows and columns of patches, or a sound in frames. Of several pictures, or a
 * picture in tiles, `crops` has the first row of each and what stands before its patches' names.
 */
export interface PictureData {
  kind: "picture"; name: string; rows: number; columns: number; width: number; height: number; source: string;
  crops: { row: number; called: string }[];
}
/** `start` and `step` are seconds; `source` has the least and the largest sample of each of a frame's `parts`. */
export interface SoundData { kind: "sound"; name: string; rows: number; columns: number; start: number; step: number; parts: number; source: string }
export type Scene = PictureData | SoundData;
export interface Item {
  label: string; text: string; origin: string; model: string; run: string; notes: string[]; emptyRows: number;
  axes: AxisData[]; kinds: KindData[]; scene: Scene | null;
  /** the same heads by what they write; empty where the page has one quantity */
  written: KindData[];
}
export interface Page {
  title: string; bits: number; items: Item[]; planes: PlaneData[]; findings: FindingData[]; measures: Measure[]; roles: Role[]; scores: ScoreDef[];
  palettes: Record<string, string[]>; fewRows: number; minRows: number;
  /** the marks of few rows and of no role, and the palette to begin with */
  few: string; noRole: string; palette: string;
  /** whether every text was run twice, one run behind the other */
  against: boolean;
  spanColors: string[];
  /** colours of less, nothing and more */
  signed: Record<"light" | "dark", string[]>;
}

/** A number and its interval, if it has one. */
export type Value = [number, number | null, number | null];
/** What a result says of every head, by kind of attention and number. */
export interface FindingData { title: string; name: string; how: string; said: Record<string, Record<string, string[]>> }
/**
 * A number that heads can be tinted by, of one of the findings, or of the text itself (-1); `orange` is
 * the sign that is orange, 0 for numbers without a sign, and `ends` what orange and blue say.
 */
export interface Measure { key: string; title: string; unit: string; from: string; finding: number; orange: number; ends: string[]; values: Record<string, Record<string, Value>> }

/** One head of the kind of attention that is shown. */
/** `name` is short, `title` says what it is: a head, or a layer where maps are of layers. */
export interface Head { id: string; name: string; title: string; place: number; site: SiteData; row: number; data: HeadData }

/** Everything that a link carries. */
export interface State {
  view: string; text: number; /** all heads, where there are very many */ every: boolean; kind: string; writes: boolean; head: string; on: string[]; mix: string; sort: string; tint: string;
  words: boolean; separators: boolean; first: boolean; rescale: boolean; quad: string;
  scale: string; palette: string; theme: string; top: number; least: number; toward: boolean; letters: boolean;
  /** the tokens that heads are ranked or marked by: a query and a key, or one of them */
  pin: string; who: string; find: string; zoom: string;
  /** what is compared with it, see second.js, and which sides are shown */
  beside: string; sides: string;
  /** whether heads are ranked by what changed */
  most: boolean;
  /** the query and key whose weight is explained */
  why: string;
  /** the part that attends and the part that it attends to, each a span `s0` or tokens `3-7` */
  spans: string;
}

/** One axis as shown: tokens or words, without what is hidden. */
export interface Axis {
  /** `named` tells repeated labels apart by their number, `spoken` leaves the marks of spaces out */
  labels: string[]; named: string[]; spoken: string[]; inline: string[]; gaps: boolean[]; special: boolean[];
  /** what stands beside rows: a query that chose the next token names it */
  rows: string[];
  /** which entries the model wrote */
  written: boolean[];
  /** first and one past the last token of each entry */
  from: number[]; to: number[];
  /** its number on the whole axis */
  at: number[];
}
/** One entry of an axis: a query or a key. */
export interface Token { side: string; i: number }
/** A map to be coloured. */
export interface Shade { color: string; data: Float32Array; top: number; rowTops: Float32Array; full: number; signed?: boolean }
export interface Layer extends Shade {
  name: string; whole: boolean;
  /** the bounds between which each weight was before it was packed */
  low(): Float32Array; high(): Float32Array;
}
/** What the drawings show: one or several maps [R, C] over the same axes. */
export interface Panel {
  queries: Axis; keys: Axis; R: number; C: number; layers: Layer[]; mixed: string; cut: boolean; rescaled: boolean;
  /** what the numbers are: a weight, or a norm's formula */
  noun: string;
  /** 1 for the cells that no head may attend by; null where there are none */
  masked: Uint8Array | null;
}
export type { Painter, TextStyle } from "./drawing.js";
export interface View {
  draw(state: State, changed: Set<keyof State> | null): void;
  /** Draw the whole of it, for saving; gives the size it needs. */
  picture(painter: Painter, state: State): { width: number; height: number };
  numbers(state: State): Iterable<string[]>;
  /** Shift and an arrow. */
  step?(dx: number, dy: number): void;
  zoom?(factor: number): void;
  /** The pair of tokens under the pointer or cursor, or the token, as `who` of the state; or nothing. */
  pointed?(): string;
  /** Let go of what the keyboard points at. */
  escape?(): void;
  /** What takes the focus when the view opens. */
  focus?(): HTMLElement | null;
}
