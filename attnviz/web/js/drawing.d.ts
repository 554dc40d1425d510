/** What the drawings of all pages share; for the type checker and for readers only. */

export interface TextStyle { size: number; color: string; align?: "left" | "center" | "right"; weight?: number; turn?: boolean }
export interface PathStyle { fill?: string; stroke?: string; width?: number; dash?: number[]; filled?: number; stroked?: number }
/** What can be drawn on: a canvas, or an SVG text. */
export interface Painter {
  rect(x: number, y: number, w: number, h: number, fill: string, opacity?: number): void;
  dot(x: number, y: number, radius: number, fill: string, opacity?: number): void;
  line(x1: number, y1: number, x2: number, y2: number, color: string, width: number, opacity?: number): void;
  curve(x1: number, y1: number, x2: number, y2: number, color: string, width: number, opacity: number): void;
  text(text: string, x: number, y: number, style: TextStyle): void;
  image(colors: Uint8ClampedArray, rows: number, columns: number, x: number, y: number, w: number, h: number): void;
  /** A path as SVG has it, whose origin stands at x, y. */
  path(d: string, x: number, y: number, style: PathStyle): void;
  /** What has been drawn already. */
  picture(drawn: HTMLCanvasElement, x: number, y: number, w: number, h: number): void;
  measure(text: string, size: number, weight?: number): number;
}
