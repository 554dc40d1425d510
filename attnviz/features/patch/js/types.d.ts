export interface Node {
  name: string;
  x: number;
  level: number;
  role?: string;
  color?: string;
  rows?: string[][];
  pattern?: number[][];
}
export interface Arrow {
  start: string;
  end: string;
  side: string;
  share: number;
  bend: number;
  /** what it restores and its interval, what it removes and its interval, how often it is in resamples */
  numbers: (number | null)[];
  rows: string[][];
}
export interface Data {
  title: string;
  headline: string;
  quote: string;
  task: string;
  measured: string;
  closing: string;
  tokens: string[];
  answer: string;
  at: number;
  most: number;
  nodes: Node[];
  arrows: Arrow[];
  levels: string[];
  fed: Record<string, string>;
  curve: [number, number, number | null, number | null][];
  random: number[];
  size: number;
  faithful: number;
  palette: string[];
}
