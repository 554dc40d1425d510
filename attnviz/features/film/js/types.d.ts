export interface Curve { mean: (number | null)[]; half: (number | null)[]; chance: number | null }
export interface Head {
  name: string; row: number; column: number; score: string; role: string | null;
  scores: Record<string, Curve>; roles: string[][]; effect: Curve | null; life: string[];
}
export interface Event { name: string; step: number; low: number | null; high: number | null }
export interface Data {
  steps: number[]; names: string[]; origin: string; heads: Head[]; layers: string[];
  loss: Curve | null; context: Curve | null; baselines: [string, number][]; first: number; formed: { head: number; score: string; role: string }[];
  events: Event[]; told: string[]; methods: string[]; shares: string[]; metric: string;
  maps: { tokens: string[]; data: string } | null; causal: boolean;
  roles: Record<string, { color: string; ink: string; code: string }>; palette: string[];
}
