/** One of the heads that are told about. */
export interface Head {
  name: string; vote: string | null; raises: string[]; weights: number[]; looks: string;
  /** sources of the key it looks at most, with their shares, or values where these cancel */
  keys: [string, number][]; shares: boolean; reason: string; map: number[][];
  /** its keys, the same in running text, the query of `weights` (null: the mean over all), and where among the keys it stands */
  tokens: string[]; texts: string[]; query: number | null; here: number | null;
}
export interface Data {
  title: string; said: string; summary: string[]; measured: string; limits: string[]; closing: string;
  tokens: string[];
  /** the same in running text */
  texts: string[];
  position: number; answer: string;
  /** words with their probabilities, as numbers and in words */
  predictions: [string, number, string][];
  /** what adds up to the lead, by name; empty where nothing does */
  account: [string, number][]; heading: string;
  votes: { layer: string; values: number[] }[];
  through: [string, number][]; sums: number[];
  heads: Head[]; methods: string[]; effects: string[][];
  /** the numbers as a table, the names of its columns first */
  lines: string[][];
  palette: string[];
  /** colours of less, nothing and more */
  signed: Record<"light" | "dark", string[]>;
}
