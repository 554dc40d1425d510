/** What one head writes; words with what is added to their logits. */
export interface Head {
  name: string; layer: string; norm: number; raises: [string, number][]; lowers: [string, number][];
  /** tokens that it raises again and again, with their shares of rows */
  recurring: [string, number][]; inText: string | null;
}
export interface Data {
  title: string; chance: string; several: boolean;
  /** the number of the head that the page opens on */
  first: number; rows: string[]; heads: Head[]; table: string[][]; palette: string[]; closing: string;
}
