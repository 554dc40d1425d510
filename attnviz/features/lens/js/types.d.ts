/** One logit of a state, as the sum of what made it. */
export interface Added { word: number; logit: number; before: number; heads: number[]; bias: number; mlp: number; mixer: number; constant: number }
/** A state, read out: its words by number, with their probabilities. */
export interface Cell { top: [number, number][]; entropy: number; kl: number; rank: number; share: number; added: Added | null }
export interface Data {
  title: string; said: string; checked: string; reason: string; closing: string;
  /** whether words stand at their positions, or follow them */
  masked: boolean;
  /** names of the states, the first one that enters the first layer */
  layers: string[];
  positions: number[]; tokens: string[]; next: string[]; followed: string[];
  /** state by state, position by position */
  cells: Cell[];
  palette: string[];
  /** words by number */
  names: string[];
}
/** A place in the table: a state and a column. */
export interface Place { layer: number; column: number }
