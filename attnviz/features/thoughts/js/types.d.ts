export interface Head {
  name: string; kurtosis: number; control: number | null; ends: string; sure: boolean;
}
/** From the sentence of a row to those before it. */
export type Matrix = (number | null)[][];
export interface Trace {
  /** number or name, text, part */
  sentences: [string, string, string][];
  read: (number | null)[];
  needed: (number | null)[] | null;
  /** effect on the answer of a sentence that is written anew, its interval, whether it is sure */
  resampled: [number | null, string, boolean][] | null;
  /** name of the head, weights */
  attention: [string, Matrix][];
  effects: Matrix | null;
  /** of each sentence those that it needs most, from 0, with the effect */
  feeds: [number, number][][];
}
export interface Data {
  title: string; measured: string; closing: string;
  apart: number; readers: string; draws: number; reliability: number | null;
  heads: Head[]; traces: Trace[]; notes: string[];
}
