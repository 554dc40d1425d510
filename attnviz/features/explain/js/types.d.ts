export interface Sentence { said: string; how: string }
export interface Told {
  name: string;
  adds: string;
  weights: number[];
  /** In thousandths, row by row, -1 where the query may not attend; empty for long texts. */
  map: number[][];
  key: number;
  said: Sentence;
  found: Sentence | null;
  /** Name and value. */
  sources: [string, number][];
}
export interface Data {
  title: string;
  closing: string;
  tokens: string[];
  position: number;
  prediction: Sentence;
  /** Word, probability, the same in words, rank. */
  predictions: [string, number, string, number][];
  split: Sentence;
  votes: number[];
  heads: Told[];
  difference: number;
  compared: string;
  methods: string[];
  without: ({ name: string; values: number[] } & Sentence)[];
  limits: string[];
  notes: string[];
  palette: string[];
  signed: Record<"light" | "dark", string[]>;
}
