/** Tokens that are followed together, or a position between two layers: 0 is before the first layer. */
export interface Node { layer: number; nodes: number[] }
/** A line: its share, the step, from where and to where. */
export type Line = [share: number, step: number, from: number, to: number];
/** What a layer does: [n, n], row by row, how much of each position a position is made of. */
export type Shares = Float32Array;
export interface Data {
  title: string; method: string; called: string; formula: string; through: string; closing: string;
  tokens: string[];
  /** where the target's tokens begin, 0 where there is no target */
  targets: number;
  columns: string[]; steps: string[]; total: string; weights: string;
  followed: { direction: "to" | "from"; positions: number[] } | null;
}
/** A token's share in words, and its bars as parts of the longest. */
export interface Bar { value: number | null; share: string; flow: number; weights: number }
/** What stands above and beside the lines. */
export interface Shown { said: string; before: Bar[]; after: Bar[] }
