export interface Role { name: string; score: string; mean: number; chance: number | null; rows: number; possible: number | null }
export interface Score { mean: number | null; chance: number | null; rows: number; texts: number; low: number | null; high: number | null }
export interface Effect { effect: number; low: number | null; high: number | null; rank: number; needed: boolean | null }
export interface Relation { relation: string; direction: string; accuracy: number; low: number | null; high: number | null; count: number; offset_accuracy: number; margin: number }
export interface Coreference { accuracy: number; low: number | null; high: number | null; baseline: string; baseline_accuracy: number; count: number }
/** What the writer was measured to add on texts, as a share of the contrast between the reader's keys. */
export interface Measured { share: number; low: number | null; high: number | null; score: string | null; rows: number; texts: number }
export interface Edge { side: string; writer: string; reader: string; ratio: number; excess: number; measured: Measured | null }
export interface HeadMap { queries: string[]; keys: string[]; row: number; first: number; weights: number[][] }
export interface Head {
  name: string; site: string; layer: number; head: number; does: Role | null; rests: Role | null;
  scores: Record<string, Score>; strings: { text: string; weight: number; uniform: number }[];
  distances: { distance: number; weight: number; uniform: number }[];
  nearest: { name: string; distance: number }[]; usual: number | null; stays: { of: number; does: number | null; nearest: number | null } | null;
  examples: { score: string; value: number; place: string; text: string; row: number; token: string }[];
  effect: Effect | null; relations: Relation[]; coreference: Coreference | null;
  copying: { plain: number | null; first: number | null } | null; copies: boolean | null; feeds: Edge[]; reads: Edge[]; map: HeadMap | null;
  /** lines of every finding, and every number with its interval */
  told: string[][]; measured: ([number, number | null, number | null] | null)[];
}
export interface Data {
  atlas: { model: string; backend: string; exactness: string; summary: string[]; methods: { part: string; said: string }[]; notes: string[]; cost: { number: string; said: string; head?: string; ends?: string } | null; metric: { name: string; unit: string; distance: boolean; orange: number; ends: string[] } | null; findings: { title: string; name: string }[]; measures: { title: string; orange: number; ends: string[] }[]; heads: Head[] };
  roles: Record<string, { color: string; ink: string; code: string }>;
  scores: Record<string, string>;
  /** the page of a head row by row */
  links: Record<string, string>;
  palette: string[]; copying: string[]; signed: { light: string[]; dark: string[] };
}
