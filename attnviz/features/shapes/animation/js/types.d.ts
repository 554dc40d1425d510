export type Box = [
  x: number, y: number, width: number, height: number, fill: string, words: string,
  colour: string, bold: boolean, ring: boolean, align: "start" | "middle" | "end",
];
/** `boxes` are pairs of numbers: of a name, and of where and how it stands. */
export interface Frame { boxes: [name: number, box: number][]; caption: string; shapes: string; seconds: number }
export interface Animation { names: string[]; boxes: Box[]; frames: Frame[] }
/** What stands on the stage under one name. */
export interface Part { group: SVGElement; rect: SVGElement; text: SVGElement; shown: boolean }
