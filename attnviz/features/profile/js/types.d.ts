/** value, rows, chance, low, high */
export type Share = [number | null, number, number | null, number | null, number | null];
/** text, row, key, the key's token, weight, norm, written, effect, weights, relations, raises, lowers, next, added */
export type Row = [number, number, number, string, number, number | null, number | null, number | null, number[], string[], string[], string[], string | null, number | null];
/** low, high, rows, share of what is written, places of rows */
export type Decile = [number, number, number, number | null, number[]];
/** value, share, tokens at the ends */
export type Singular = [number, number, string[], string[], string[], string[]];
export interface Leaf { where: string; share: number; rules: [string, ...Share][] }
export interface Calibration { role: string; holds: Share; possible: number; residue: [string, number, number[]][] }
export interface Head {
  name: string; headline: string; roles: string[]; rows: Row[]; deciles: Record<string, Decile[]>; rules: Leaf[];
  shares: Record<string, Share>; unexplained: Share; halves: [number, number]; calibrations: Calibration[];
  classes: [string, string, number, number, number][]; pairs: [string, string, number, number, number][]; pairError: number;
  specific: [string, number, number][]; unspecific: [string, number, number][];
  along: [number, number, number, number, number, number, number][];
  planes: Record<string, [[number, number], [number, number][]]>; decile: number[]; qk: Singular[]; ov: Singular[];
}
export interface Data {
  title: string; about: string; model: string; texts: [number, string, number, number, string[]][]; heads: Head[];
  points: [string, string, number][]; said: { relations: Record<string, string>; criteria: Record<string, string> };
  reasons: string[]; palette: string[]; links: Record<string, string>; closing: string; lines: string[][];
}
