export interface Distance { mean: number; largest: number; text: number; row: number; token: string; rows: number }
export interface Change { name: string; unit: string; before: number; after: number; change: number }
export interface Labels { queries: string[]; keys: string[] }
export interface Head {
  name: string; kind: string; rows: number; columns: number; first: string; change: string; /** packed bits of the cells that may not be attended by, or empty */ masked: string;
  distance: Distance | null; changes: Change[]; gained: string[]; lost: string[];
}
export interface Data {
  before: string; after: string; below: string; /** whether nothing changed */ same: boolean; align: string; origin: string[]; notes: string[];
  sides: Record<string, [Labels, Labels]>; heads: Head[];
  palette: string[]; signed: { light: string[]; dark: string[] };
}
