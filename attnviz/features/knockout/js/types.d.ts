/** What one cut did; numbers are in the unit of the page. */
export interface Effect {
  rows: string; keys: string; kind: "all" | "heads" | "window"; name: string; layer: number | null;
  weight: number; value: number; ends: [number, number] | null; control: number | null; matched: string; taken: number | null; sure: boolean | null; does: string;
}
export interface Data {
  title: string; measured: string; closing: string; unit: string; metric: string;
  /** the sign of a change for the worse; 0 for a distance */
  worse: number;
  window: number; draws: number; rows: string[]; keys: string[];
  /** name, tokens, text */
  spans: [string, number, string][];
  effects: Effect[];
  /** rows, keys, heads, what is written, what is written with the control */
  written: [string, string, string, string, string][];
  colors: { light: string[]; dark: string[] };
  notes: string[];
}
