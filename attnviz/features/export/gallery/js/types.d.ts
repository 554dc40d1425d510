/** Where the maps stand in a picture, in its pixels. */
export type Box = [left: number, top: number, width: number, height: number];
/** `layer` and `head` are null for pictures of several; `layout`, `site` and roles are numbers in the lists; `box` is null where it is not known. */
export type Picture = [file: string, layout: number, site: number, layer: number | null, head: number | null, roles: number[], box: Box | null];
export type Input = [number: number, name: string, text: string, pictures: Picture[]];
/** A row in the list: an input's name, or some of its pictures. */
export type Row = { y: number; item: Input } | { y: number; from: number; to: number };
export interface Data { title: string; layouts: string[]; sites: string[]; roles: string[]; items: Input[]; dark: boolean }
