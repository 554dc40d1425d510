export interface Head { name: string; said: string; layer: number; mask: number; top: number; most: number; tiles: string; rows: string }
export interface Data {
  title: string; said: string; closing: string; notes: string[];
  /** tokens along a tile; tiles down and across; weights kept of a row */
  size: number; tiles: [number, number]; kept: number;
  /** positions of the first query and the one after the last, and of keys */
  part: [number, number, number, number];
  queries: string[]; keys: string[] | null; causal: boolean;
  masks: string[]; heads: Head[]; palette: string[];
}
/** Tiles of a head: the largest weights, and sums. */
export interface Tiles { largest: Float32Array; sums: Float32Array; allowed: Uint8Array }
/** What is kept of its rows, row by row: keys (-1 for none) and weights. */
export interface Kept { keys: Int32Array; weights: Float32Array }
/** A square part of the map, in tokens. */
export interface Part { row: number; key: number; side: number }
export interface State { head: number; sum: boolean; part: Part; held: [number, number] | null }
/** A part as cells: values, which of them are masked, and how exact they are. */
export interface Cells { cell: number; rows: number; columns: number; values: Float32Array; masked: Uint8Array; covered: number; below: number }
export interface Pair { query: number; key: number; weight: number }
export interface Painter {
  rect(x: number, y: number, w: number, h: number, fill: string, opacity?: number): void;
  line(x1: number, y1: number, x2: number, y2: number, color: string, width: number, opacity?: number): void;
  text(text: string, x: number, y: number, style: { size: number; color: string; align?: "left" | "center" | "right"; weight?: number; turn?: boolean }): void;
  image(colors: Uint8ClampedArray, rows: number, columns: number, x: number, y: number, w: number, h: number): void;
  measure(text: string, size: number, weight?: number): number;
}
